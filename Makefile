# SPDX-License-Identifier: GPL-2.0-or-later
# Builds and tests pms. `make help` lists the targets; everything built lies under build/.
#
#   make CC=clang            another compiler          objects and results in build/clang/
#   make SAN=asan|tsan       sanitizers                                     build/gcc-asan/ ...
#   make CC=clang SAN=fuzz   what the fuzzers need                          build/clang-fuzz/
#   make OUT=DIR             an output folder of one's own
#   make V=1                 shows the commands

MAKEFLAGS += --no-builtin-rules --no-print-directory
.SUFFIXES:
.DELETE_ON_ERROR:

ifeq ($(origin CC),default)
CC := gcc
endif
AR ?= ar
SAN ?=
VARIANT := $(notdir $(firstword $(CC)))$(if $(SAN),-$(SAN))
OUT ?= build$(if $(filter-out gcc,$(VARIANT)),/$(VARIANT))
OBJ := $(OUT)/obj
TGT_SRC := build/tgt-src

CFLAGS ?= -O2 -g
WARN := -Wall -Wextra -Werror -Wstrict-prototypes -Wvla
FLAGS := -std=gnu11 $(WARN) -D_GNU_SOURCE= -I. -pthread -fno-omit-frame-pointer $(CFLAGS)
LINK := -pthread -Wl,--as-needed $(LDFLAGS)
ifeq ($(SAN),asan)
FLAGS += -fsanitize=address,undefined -fno-sanitize-recover=all
LINK += -fsanitize=address,undefined
else ifeq ($(SAN),tsan)
FLAGS += -fsanitize=thread
LINK += -fsanitize=thread
else ifeq ($(SAN),fuzz)
FLAGS += -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all
LINK += -fsanitize=fuzzer,address,undefined
else ifneq ($(SAN),)
$(error SAN is asan, tsan, fuzz or empty)
endif

LDLIBS := -lraft -luv -ljansson -lmicrohttpd -lgnutls -llz4 -lxxhash -luring -lisal -lsystemd

PREFIX ?= /usr
DESTDIR ?=
LEVEL ?= raid1
SEEDS ?= 1000
FIRST_SEED ?= 1
SECONDS_EACH ?= 60
BENCH_ARGS ?= --min-ratio 0.25

ifeq ($(V),1)
Q :=
say = @:
else
Q := @
say = @printf '  %-5s %s\n'
endif

# ---- Sources: a room's files are found by wildcard, and an empty room is no error. ----

src_base := $(wildcard base/*.c)
src_consensus := $(wildcard consensus/*/*.c)
src_datapath := $(wildcard datapath/*/*.c)
src_target := $(wildcard target/host/*.c)
src_pmsd := $(wildcard cmd/pmsd/*.c)
src_pmsctl := $(wildcard cmd/pmsctl/*.c)
src_redirect := $(wildcard target/plugin/pms_redirect.c)
src_plugin := $(filter-out $(src_redirect),$(wildcard target/plugin/*.c))
src_plugin += $(if $(src_plugin),$(wildcard datapath/io/ring.c datapath/io/ring_plugin.c base/version.c))
src_core := $(wildcard consensus/core/*.c datapath/core/*.c)
src_sim := $(wildcard tests/sim/*.c)
src_raft_sim := $(wildcard tests/raft/*.c)
src_tools := $(wildcard tests/tools/*.c)
src_tools_lib := $(wildcard tests/tools/lib/*.c)
src_bench := $(wildcard bench/*.c)
src_unit := $(wildcard tests/unit/test_*.c)

objs = $(patsubst %.c,$(OBJ)/%.o,$(1))
objs_pic = $(patsubst %.c,$(OBJ)/pic/%.o,$(1))
objs_mutants = $(patsubst %.c,$(OBJ)/mutants/%.o,$(1))

# Order matters to the linker: who uses comes before whom it uses.
LIBS := $(OUT)/libtarget.a $(OUT)/libdatapath.a $(OUT)/libconsensus.a $(OUT)/libbase.a

programs := $(if $(src_pmsd),$(OUT)/pmsd) $(if $(src_pmsctl),$(OUT)/pmsctl)
# tgtd is not built with sanitizers, so nothing that it loads can be.
ifeq ($(SAN),)
programs += $(if $(src_plugin),$(OUT)/bs_pms.so) $(if $(src_redirect),$(OUT)/pms_redirect.so)
programs += $(if $(wildcard /usr/sbin/tgtd),$(OUT)/tgtd)
endif
sims := $(if $(src_sim),$(OUT)/tests/sim $(OUT)/tests/sim-mutants)
raft_sim := $(if $(src_raft_sim),$(OUT)/tests/raft-sim)
tools := $(patsubst tests/tools/%.c,$(OUT)/tests/tools/%,$(src_tools))
# For the test guest: static, so without sanitizers.
guestio := $(if $(SAN),,$(OUT)/tests/guest/guestio)
fuzzers := $(patsubst tests/fuzz/%.c,$(OUT)/tests/fuzz/%,$(wildcard tests/fuzz/fuzz_*.c))
# tgtd gets one library preloaded, the redirecting one: where copies are watched it is in there too.
preloads := $(if $(SAN),,$(OUT)/tests/copies.so $(OUT)/tests/copies_redirect.so)
bench_load := $(if $(src_bench),$(OUT)/bench/load)
units := $(patsubst tests/unit/%.c,$(OUT)/tests/unit/%,$(src_unit))

.PHONY: all everything next unit test sim sim-build raft-sim-build fuzz fuzz-build demo soak bench bench-build install check format tidy deps clean help

all: $(LIBS) $(programs) $(tools) $(guestio)

everything: all $(if $(SAN),,next) $(units) $(sims) $(raft_sim) $(bench_load) $(preloads)

# What knows versions, compiled once more for builds that are ahead of this one (see base/version.c).
next_src := base/version.c $(shell grep -l PMS_VERSION_BUMP consensus/*/*.c cmd/pmsd/*.c)
next_builds := $(OUT)/next1 $(OUT)/next2

# ---- Libraries and programs. Results appear by rename, so that a running reader never sees half a file. ----

$(OUT)/libbase.a: $(call objs,$(src_base))
$(OUT)/libconsensus.a: $(call objs,$(src_consensus))
$(OUT)/libdatapath.a: $(call objs,$(src_datapath))
$(OUT)/libtarget.a: $(call objs,$(src_target))

$(LIBS) $(OUT)/tests/libtools.a:
	$(say) AR $@
	@mkdir -p $(@D)
	$(Q)rm -f $@.$$$$ && $(AR) rcs $@.$$$$ $(filter %.o,$^) && mv -f $@.$$$$ $@

# $(call link,extra libraries): all prerequisites that are objects, then the libraries.
define link
$(say) LINK $@
@mkdir -p $(@D)
$(Q)$(CC) $(LINK) -o $@.$$$$ $(filter %.o,$^) $(filter %.a,$^) $(1) && mv -f $@.$$$$ $@
endef

$(OUT)/pmsd: $(call objs,$(src_pmsd)) $(LIBS)
	$(call link,$(LDLIBS))

# pmsctl recover works on the state directory of a stopped pmsd.
$(OUT)/pmsctl: $(call objs,$(src_pmsctl) cmd/pmsd/node_file.c cmd/pmsd/recover.c cmd/pmsd/recover_report.c) $(LIBS)
	$(call link,$(LDLIBS))

$(OUT)/bs_pms.so: $(call objs_pic,$(src_plugin))
	$(call link,-shared)
	@if nm -D --undefined-only $@ | grep ' pms_'; then echo '$@ needs the above, which tgtd has not' >&2; rm -f $@; exit 1; fi

$(OUT)/pms_redirect.so: $(call objs_pic,$(src_redirect))
	$(call link,-shared -ldl)

# The private copy: an upgrade of the package cannot part tgtd and the plugin built for it.
$(OUT)/tgtd: /usr/sbin/tgtd
	$(say) COPY $@
	@mkdir -p $(@D)
	$(Q)cp $< $@.$$$$ && mv -f $@.$$$$ $@

# ---- Builds that are ahead, for tests of upgrades: next1 is the next version, next2 the one after it had stopped
# to speak this one. Only what knows versions differs; tgtd and pmsctl are as here. ----

# $(call next,N)
define next
$(OBJ)/next$(1)/%.o: %.c Makefile
	$$(call compile,-DPMS_VERSION_BUMP=$(1))

$(OBJ)/pic/next$(1)/%.o: %.c Makefile build/tgt-src.fetched
	$$(call compile,$$(tgt_flags) -DPMS_VERSION_BUMP=$(1))

$(OUT)/next$(1)/pmsd: $(patsubst %.c,$(OBJ)/next$(1)/%.o,$(next_src)) $(call objs,$(filter-out $(next_src),$(src_pmsd))) $(LIBS)
	$$(call link,$$(LDLIBS))

$(OUT)/next$(1)/bs_pms.so: $(OBJ)/pic/next$(1)/base/version.o $(call objs_pic,$(filter-out base/version.c,$(src_plugin)))
	$$(call link,-shared)

$(OUT)/next$(1)/%: $(OUT)/%
	@mkdir -p $$(@D)
	$$(Q)ln -f $$< $$@
endef
$(foreach n,1 2,$(eval $(call next,$(n))))

next: $(foreach d,$(next_builds),$(patsubst $(OUT)/%,$d/%,$(programs)))

# ---- Test programs. ----

$(OUT)/tests/sim: $(call objs,$(src_sim)) $(LIBS)
	$(call link,$(LDLIBS))

# The pure cores a second time, with the planted bugs compiled in (each is off until named at run time).
$(OUT)/tests/sim-mutants: $(call objs_mutants,$(src_sim) $(src_core)) $(LIBS)
	$(call link,$(LDLIBS))

$(OUT)/tests/raft-sim: $(call objs,$(src_raft_sim)) $(LIBS)
	$(call link,$(LDLIBS))

$(tools): $(OUT)/tests/tools/%: $(OBJ)/tests/tools/%.o $(call objs,$(src_tools_lib)) $(OUT)/libdatapath.a $(OUT)/libbase.a
	$(call link,-liscsi -ljansson -lxxhash)

$(OUT)/tests/guest/guestio: $(OBJ)/tests/guest/guestio.o
	$(call link,-static)

$(units): $(OUT)/tests/unit/%: $(OBJ)/tests/unit/%.o $(OUT)/tests/libtools.a $(LIBS)
	$(call link,$(LDLIBS) -liscsi -lcmocka)

$(OUT)/bench/load: $(call objs,$(src_bench)) $(OUT)/libbase.a
	$(call link,-liscsi)

$(OUT)/tests/unit/test_state_next: $(patsubst %.c,$(OBJ)/next1/%.o,$(filter-out cmd/%,$(next_src)))

# libFuzzer's, each with a main of its own: only with CC=clang SAN=fuzz.
$(fuzzers): $(OUT)/tests/fuzz/%: $(OBJ)/tests/fuzz/%.o $(LIBS)
	$(call link,$(LDLIBS))

$(OUT)/tests/copies.so: $(OBJ)/pic/tests/preload/copies.o
	$(call link,-shared -ldl)

$(OUT)/tests/copies_redirect.so: $(OBJ)/pic/tests/preload/copies.o $(call objs_pic,$(src_redirect))
	$(call link,-shared -ldl)

# What the tools and the load generator are made of, for the unit tests of it.
$(OUT)/tests/libtools.a: $(call objs,$(src_tools_lib) $(filter bench/meter.c,$(src_bench)))

# ---- Objects. ----

# $(call compile,extra flags)
define compile
$(say) CC $<
@mkdir -p $(@D)
$(Q)$(CC) $(FLAGS) $(1) -MMD -MP -MT $@ -MF $(@:.o=.d) -c -o $@.$$$$ $< && mv -f $@.$$$$ $@
endef

$(OBJ)/%.o: %.c Makefile
	$(call compile,)

$(OBJ)/mutants/%.o: %.c Makefile
	$(call compile,-DPMS_MUTANTS)

# tgt's own headers are not ours to warn about.
tgt_flags := -fPIC -fno-strict-aliasing -Ibuild -isystem $(TGT_SRC)/usr -isystem $(TGT_SRC)/usr/iscsi
$(OBJ)/pic/%.o: %.c Makefile build/tgt-src.fetched
	$(call compile,$(tgt_flags))

$(OBJ)/pic/target/plugin/pms_redirect.o: target/plugin/pms_redirect.c Makefile
	$(call compile,-fPIC)

$(OBJ)/pic/tests/preload/copies.o: tests/preload/copies.c Makefile
	$(call compile,-fPIC)

# The source of the installed tgt: headers for the plugin.
build/tgt-src.fetched: scripts/fetch-tgt-source $(wildcard /usr/sbin/tgtd)
	$(say) FETCH $(TGT_SRC)
	@mkdir -p build
	$(Q)scripts/fetch-tgt-source && touch $@

.SECONDARY:

-include $(shell test -d $(OBJ) && find $(OBJ) -name '*.d')

# ---- Tests and the rest. ----

unit: $(units)
	@for t in $(units); do $$t || exit 1; done

test: deps
	@tests/run

sim-build: $(sims)
raft-sim-build: $(raft_sim)
bench-build: $(bench_load)

sim: $(sims)
	$(Q)$(OUT)/tests/sim --seeds $(SEEDS) --first $(FIRST_SEED)

# Each fuzzer for SECONDS_EACH.
fuzz-build: $(fuzzers)
fuzz:
	@$(MAKE) CC=clang SAN=fuzz fuzz-build
	@tests/fuzz/run $(SECONDS_EACH)

# Until interrupted or until a seed fails.
soak: $(sims)
	@first=$(FIRST_SEED); while $(OUT)/tests/sim --seeds $(SEEDS) --first $$first; do first=$$((first + $(SEEDS))); done; exit 1

demo: deps
	@$(MAKE) all
	@scripts/demo $(LEVEL)

bench: deps
	@$(MAKE) all bench-build
	@bench/run $(BENCH_ARGS)

# Installs what is missing; says what to do where that needs root.
deps:
	@scripts/deps

install: all
	install -d $(DESTDIR)$(PREFIX)/lib/pms $(DESTDIR)$(PREFIX)/sbin $(DESTDIR)$(PREFIX)/bin
	install -m 755 $(programs) $(DESTDIR)$(PREFIX)/lib/pms
	ln -sf ../lib/pms/pmsd $(DESTDIR)$(PREFIX)/sbin/pmsd
	ln -sf ../lib/pms/pmsctl $(DESTDIR)$(PREFIX)/bin/pmsctl

sources = $(shell scripts/sources '*.c' '*.h')

check:
	@clang-format --dry-run -Werror $(sources)
	@scripts/check-rooms
	@scripts/check-pure

format:
	@clang-format -i $(sources)

# One stamp a file: what was clean stays so until it or a header changes.
tidy_src := $(src_base) $(src_consensus) $(src_datapath) $(src_target) $(src_pmsd) $(src_pmsctl) $(src_bench)
tidy: $(patsubst %.c,build/tidy/%.ok,$(tidy_src))
build/tidy/%.ok: %.c .clang-tidy $(wildcard base/*.h consensus/*/*.h datapath/*/*.h target/host/*.h cmd/*/*.h bench/*.h)
	$(say) TIDY $<
	@mkdir -p $(@D)
	$(Q)clang-tidy --quiet --warnings-as-errors='*' $< -- -std=gnu11 -D_GNU_SOURCE= -I. > $@.log 2>&1 || { cat $@.log; exit 1; }
	@touch $@

clean:
	rm -rf build

help:
	@echo 'all (default)   libraries, pmsd, pmsctl, the tgtd plugin, test tools   -> build/'
	@echo 'next            builds one and two versions ahead, for tests of upgrades   -> build/next1/, build/next2/'
	@echo 'test            everything that can be tested; SKIP_SYSTEM=1, ONLY=pattern; logs in build/log/'
	@echo 'unit            unit tests only'
	@echo 'sim             the cluster simulator: SEEDS=1000 FIRST_SEED=1'
	@echo 'fuzz            every fuzzer for SECONDS_EACH=60'
	@echo 'soak            the simulator with ever new seeds, until one fails'
	@echo 'demo            a cluster on this machine, a failover under load (as root): LEVEL=raid1'
	@echo 'bench           ours and stock tgtd side by side (as root): BENCH_ARGS="--seconds 5", see bench/run --help'
	@echo 'install         DESTDIR= PREFIX=/usr'
	@echo 'check           formatting, directions between rooms, purity of core/'
	@echo 'tidy            clang-tidy'
	@echo 'format          applies clang-format'
	@echo 'deps            installs the Debian packages that are missing (as root)'
	@echo 'clean           removes build/'
	@echo 'Variables: CC=gcc|clang  SAN=asan|tsan  OUT=DIR  V=1'
