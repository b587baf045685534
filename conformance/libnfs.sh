#!/bin/bash
# Moves files through libnfs's own tools (nfs-ls, nfs-cp, nfs-cat of Debian's libnfs-utils) against a
# running server and compares what comes back.
#
#   conformance/libnfs.sh HOST PORT [EXPORT [MOUNTPORT]]
#
# EXPORT defaults to /vol1, MOUNTPORT to PORT. Needs a writable export for the calling user; leaves only
# files named libnfs-* there when it fails, and what it wrote stays (libnfs-utils cannot remove). Prints
# "ok NAME" for each check; the first failure ends it with status 1. Status 3: the tools are not installed.
set -eu
[ $# -ge 2 ] || { sed -n '2,/^set -eu/{/^#/p}' "$0" | sed 's/^# \{0,1\}//' >&2; exit 2; }
HOST=$1 PORT=$2 EXPORT=${3:-/vol1} MOUNTPORT=${4:-$2}
for t in nfs-ls nfs-cp nfs-cat; do command -v $t >/dev/null || { echo "libnfs.sh: no $t (Debian: libnfs-utils)" >&2; exit 3; }; done
W=$(mktemp -d)
trap 'rm -rf "$W"' EXIT
TAG=libnfs-$$
ARGS="version=3&nfsport=$PORT&mountport=$MOUNTPORT&auto-traverse-mounts=0"
url() { echo "nfs://$HOST$EXPORT/$1?$ARGS"; }
t() { timeout 60 "$@"; } # libnfs waits for ever for a server that does not answer
fail() { echo "FAIL $*" >&2; exit 1; }
sum() { sha256sum | cut -d' ' -f1; }

# Sizes around the limits of a block, of libnfs's buffer and of one WRITE.
for size in 0 1 4095 4096 4097 65536 1048576 1048577 8388608 33554433; do
  head -c $size /dev/urandom >"$W/out"
  want=$(sum <"$W/out")
  t nfs-cp "$W/out" "$(url "$TAG-$size")" >"$W/log" 2>&1 || fail "nfs-cp of $size bytes to the server: $(tail -n 1 "$W/log")"
  t nfs-cp "$(url "$TAG-$size")" "$W/back" >"$W/log" 2>&1 || fail "nfs-cp of $size bytes back: $(tail -n 1 "$W/log")"
  [ "$(sum <"$W/back")" = "$want" ] || fail "nfs-cp of $size bytes: another checksum came back"
  if [ $size -gt 0 ]; then
    [ "$(t nfs-cat "$(url "$TAG-$size")" 2>"$W/log" | sum)" = "$want" ] || fail "nfs-cat of $size bytes: another checksum"
  fi
  rm "$W/back"
  echo "ok copy-$size"
done

t nfs-ls "$(url '')" >"$W/ls" 2>&1 || fail "nfs-ls: $(tail -n 1 "$W/ls")"
for size in 0 4097 33554433; do
  line=$(grep -- " $TAG-$size\$" "$W/ls") || fail "nfs-ls does not list $TAG-$size"
  [[ $line == -* ]] || fail "nfs-ls calls $TAG-$size no file: $line"
  grep -qw -- "$size" <<<"$line" || fail "nfs-ls gives $TAG-$size another size: $line"
done
echo "ok list"
t nfs-ls -s "$(url '')" >"$W/ls" 2>&1 && grep -Eq '^ *[0-9]+ of +[0-9]+ bytes free' "$W/ls" || fail "nfs-ls -s: $(tail -n 1 "$W/ls")"
echo "ok summary"

# libnfs 4.0 creates exclusively: a second copy to the same name is refused and changes nothing.
printf short >"$W/out"
if t nfs-cp "$W/out" "$(url "$TAG-4097")" >"$W/log" 2>&1; then
  [ "$(t nfs-cat "$(url "$TAG-4097")")" = short ] || fail "a replaced file keeps bytes of the old one"
else
  grep -q EXIST "$W/log" || fail "nfs-cp over a file: $(tail -n 1 "$W/log")"
  [ "$(t nfs-cat "$(url "$TAG-4097")" | wc -c)" = 4097 ] || fail "a refused copy changed the file"
fi
echo "ok second-copy"

# Eight clients at once, each with its own MOUNT.
head -c 2097152 /dev/urandom >"$W/out"; want=$(sum <"$W/out"); pids=()
for i in 1 2 3 4 5 6 7 8; do t nfs-cp "$W/out" "$(url "$TAG-par$i")" >"$W/log$i" 2>&1 & pids+=($!); done
for p in "${pids[@]}"; do wait "$p" || fail "one of eight simultaneous nfs-cp: $(tail -q -n 1 "$W"/log[1-8])"; done
for i in 1 2 3 4 5 6 7 8; do [ "$(t nfs-cat "$(url "$TAG-par$i")" | sum)" = "$want" ] || fail "parallel copy $i differs"; done
echo "ok eight-at-once"

if t nfs-cat "$(url "$TAG-none")" >"$W/log" 2>&1; then fail "nfs-cat of a file that does not exist succeeded"; fi
grep -qi 'NOENT\|no such' "$W/log" || fail "nfs-cat of a missing file says: $(tail -n 1 "$W/log")"
if t nfs-ls "nfs://$HOST/no/such/export?$ARGS" >"$W/log" 2>&1; then fail "an export that does not exist can be mounted"; fi
echo "ok refusals"
if command -v nfs-stat >/dev/null; then t nfs-stat "$(url "$TAG-1")" >"$W/log" 2>&1 || fail "nfs-stat: $(tail -n 1 "$W/log")"; echo "ok stat"; fi
