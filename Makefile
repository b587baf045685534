# Weir: build, run, test. `make serve` and `make test` are all that most people need.

CARGO ?= cargo
DATA ?= ./weir-data
NFS ?= 127.0.0.1:2049
SMB ?= 127.0.0.1:4450
API ?= 127.0.0.1:8049

# What is shipped: the server, the load generators, the CSI driver and the client doctor. Always built together, so that cargo chooses the same
# features of the crates below them each time.
PROGRAMS = -p weir -p weir-bench -p weir-csi -p weir-doctor

# rust-toolchain.toml has rustup look for the pinned release by its number and download it if that is missing. Where the
# default toolchain is the same release under another name, such as `stable`, it is used as it is.
ifdef RUSTUP_TOOLCHAIN
else ifneq ($(shell command -v rustup),)
  ifeq ($(shell cd / && rustc -V | cut -d' ' -f2),$(shell sed -n 's/^channel = "\(.*\)"/\1/p' rust-toolchain.toml))
    export RUSTUP_TOOLCHAIN := $(shell cd / && rustup show active-toolchain | cut -d' ' -f1)
  endif
endif

.NOTPARALLEL:
.PHONY: backup csi model help serve tools build check test docs-site xfstests deps fmt clippy deny tidy smoke attack attack-long krb5 smb ad ceph ceph-three cluster api docs ontap lab unit alerts conformance bench peers sim sim-owner sim-large fuzz console browser dist packages

help:
	@echo 'make serve    build and serve a volume from $(DATA) on $(NFS) (DATA=DIR NFS=ADDR:PORT SMB=ADDR:PORT API=ADDR:PORT)'
	@echo 'make tools    weir bench, weir csi and weir doctor, beside what make serve has built'
	@echo 'make build    a release, with the web console where Node is'
	@echo 'make console  the web console, which the next build embeds (Node 20.19 or later)'
	@echo 'make docs-site  the documents as a site in target/docs-site (mdBook)'
	@echo 'make dist     deb, rpm and OCI image of a release build in target/packages'
	@echo 'make check    what is quick to check before a commit: form, lints, unit tests of the crates that changed'
	@echo 'make test     everything that must pass before a change goes in'
	@echo 'make sim      simulated crashes and faults, many seeds (SEEDS=N START=S)'
	@echo 'make sim-large  large volumes over constituents that crash, 20,000 seeds'
	@echo 'make sim-owner  takeovers of an aggregate on RADOS, 20,000 seeds'
	@echo 'make model    every order of events in the places without a lock around them (loom)'
	@echo 'make fuzz     reproducible mutations of everything that is decoded (SEEDS=N START=S)'
	@echo 'make attack-long  attacks at their published sizes, over a release'
	@echo 'make csi      the CSI driver with csi-test, against a server'
	@echo 'make conformance  pynfs over NFSv4.1 and 4.2 (PYNFS=DIR, see conformance/README.md)'
	@echo 'make bench    side by side with NFS-Ganesha on this machine (installs it)'
	@echo 'make peers    the published matrix on Weir, NFS-Ganesha and knfsd, with reports'

serve:
	$(CARGO) run --profile serve -p weir -- serve --data '$(DATA)' --nfs '$(NFS)' --smb '$(SMB)' --api '$(API)'

# `weir bench`, `weir csi` and `weir doctor` for the server that `make serve` has built.
tools:
	$(CARGO) build --profile serve -p weir-bench -p weir-csi -p weir-doctor

build:
	console/build --if-possible
	$(CARGO) build --release $(PROGRAMS)

# What a release ships: the binaries with link-time optimisation, and deb, rpm and OCI image of them in target/packages.
dist:
	console/build
	$(CARGO) build --profile dist $(PROGRAMS) --locked
	packaging/build target/dist/weir target/packages

# The packages of a development build: installed in a clean Debian, upgraded under a writing client, read by lintian.
packages:
	$(CARGO) build $(PROGRAMS) --locked
	conformance/packages/run

# The web console's files, which the next build of the server embeds.
console:
	console/build

# What is quick to check before a commit, in under five minutes when little has changed.
check:
	.ci/check

# The order: what is missing on the machine, what is quick to say, the real binary against real
# clients, and last the test suite, so that its summary ends the output.
test: deps fmt clippy deny tidy smoke attack krb5 smb ad ceph cluster api csi backup alerts ontap docs browser lab unit

deps:
	bash .ci/deps

fmt:
	$(CARGO) fmt --all --check

clippy:
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

# Licences and sources of what is linked. The first run downloads cargo-deny (5 MB).
deny:
	.ci/deny

tidy:
	$(CARGO) run -q --locked -p xtask -- tidy

# Real clients (libnfs) and kill -9 against the real binary.
smoke:
	$(CARGO) build --workspace --bins --locked
	bash .ci/smoke
	conformance/service/run
	conformance/upgrade/run

# What anybody on the network may try, in its short form.
attack:
	$(CARGO) build $(PROGRAMS) --locked
	conformance/attack/run

# The same at the sizes at which attacks were found, over a release: minutes, and a machine of its own.
attack-long:
	$(CARGO) build --release $(PROGRAMS) --locked
	WEIR=target/release/weir ATTACK=long conformance/attack/run

# Users that Kerberos establishes, with a realm of the tests' own.
krb5:
	$(CARGO) build $(PROGRAMS) --locked
	conformance/krb5/run

# The protocol's tester over NFSv4.1 and 4.2, in half an hour. Not a part of `test`: PYNFS=DIR says where it is (conformance/README.md).
conformance:
	$(CARGO) build $(PROGRAMS) --locked
	conformance/pynfs/run

# xfstests with the Linux kernel's client in a virtual machine. Not a part of `test`: VMCLIENT and SUITES say where these are
# (conformance/README.md).
xfstests:
	$(CARGO) build --release $(PROGRAMS) --locked
	conformance/run -v 4.2 xfstests

# Samba's client and its tests, with users of their own.
smb:
	$(CARGO) build $(PROGRAMS) --locked
	conformance/smb/run

# SMB in an Active Directory domain, with a domain controller of the tests' own (Samba's).
ad:
	$(CARGO) build $(PROGRAMS) --locked
	conformance/ad/run

# Aggregates on a Ceph of the tests' own, from Debian's packages (else skipped by name).
ceph:
	$(CARGO) build --workspace --bins --locked
	conformance/ceph/run

# The same on three OSDs with three copies: some minutes longer, and 2 GiB of memory.
ceph-three:
	$(CARGO) build --workspace --bins --locked
	OSDS=3 conformance/ceph/run

# A cluster of three nodes on this machine, with a Ceph and a PostgreSQL of its own (else skipped by name).
cluster:
	$(CARGO) build $(PROGRAMS) --locked
	conformance/cluster/run

# Clients that others have written, against the API of the real binary.
api:
	$(CARGO) build $(PROGRAMS) --locked
	conformance/api/run
	conformance/cli/run

# The CSI driver: csi-test's sanity suite and tests of its own. After `api`, which installs gRPC for Python.
csi:
	$(CARGO) build $(PROGRAMS) --locked
	conformance/csi/run

# Backups in a bucket of S3 and in a folder.
backup:
	$(CARGO) build $(PROGRAMS) --locked
	conformance/backup/run

# Alert rules and dashboards, with promtool and Prometheus where they can be had (else skipped by name).
alerts:
	$(CARGO) build $(PROGRAMS) --locked
	.ci/prometheus

# What README.md and docs/ say to type, typed. After `api` and `ontap`, which install Google's and NetApp's libraries and Ansible.
docs:
	$(CARGO) build $(PROGRAMS) --locked
	conformance/docs/run

# The documents as a site in target/docs-site. The first run compiles mdBook.
docs-site:
	.ci/docs-site

# NetApp's Python client, Ansible's modules and a published session against the real binary. The first run downloads
# the two; where there is no package index, it says so and skips what needs them.
ontap:
	$(CARGO) build $(PROGRAMS) --locked
	conformance/ontap/run

# The web console in Chromium, over the real server under load.
browser:
	console/build --if-possible
	$(CARGO) build $(PROGRAMS) --locked
	conformance/console/run

# The benchmark lab: a tiny matrix through both generators, and its reports in a browser.
lab:
	$(CARGO) build $(PROGRAMS) --locked
	conformance/lab/run

unit:
	$(CARGO) test --workspace --locked

bench:
	$(CARGO) build --release $(PROGRAMS)
	bench/vs-ganesha

# The netapp-extreme matrix, scaled to this machine, on Weir and its peers in turn.
peers:
	$(CARGO) build --release $(PROGRAMS)
	bench/peers/run

# Long runs of what `unit` does briefly. The development profile: its overflow checks are a part of the test.
SEEDS ?= 1000
START ?= 100000

sim:
	$(CARGO) run --locked -p weir-sim -- --seeds $(SEEDS) --start $(START)

# Takeovers of an aggregate on RADOS at length: some minutes.
sim-owner:
	$(CARGO) run --locked -p weir-sim -- owner --seeds 20000 --start $(START)

# The same of large volumes.
sim-large:
	$(CARGO) run --locked -p weir-sim -- large --seeds 20000 --start $(START)

# Tries every order of events that the memory model allows in the places without a lock around them (weir_base::sync).
model:
	RUSTFLAGS="--cfg model" $(CARGO) test --locked --target-dir target/model -p weir-base -p weir-store -p weir-net -p weir-volume -p weir-vfs --lib orders::

fuzz:
	$(CARGO) run --locked -p weir-sim -- fuzz --seeds $(SEEDS) --start $(START)
