# Shared by the guest scripts. A check prints "ok NAME" or "FAIL NAME why"; a script ends with finish,
# which prints "SCORE total passed failed skipped seconds".
PASSED=0 FAILED=0 SKIPPED=0 BEGAN=$(date +%s)
ok() { PASSED=$((PASSED + 1)); echo "ok $1"; }
bad() { FAILED=$((FAILED + 1)); local n=$1; shift; echo "FAIL $n $*"; }
skip() { SKIPPED=$((SKIPPED + 1)); echo "skip $*"; }
check() { # check NAME COMMAND...: must exit 0
  local n=$1 out; shift
  if out=$("$@" 2>&1); then ok "$n"; else bad "$n" "status $?: $(tail -n 3 <<<"$out" | tr '\n' ' ')"; fi
}
refuses() { # refuses NAME TEXT COMMAND...: must fail and say TEXT
  local n=$1 text=$2 out; shift 2
  if out=$("$@" 2>&1); then bad "$n" "succeeded"; elif [[ $out == *"$text"* ]]; then ok "$n"; else bad "$n" "said: $out"; fi
}
finish() { echo "SCORE $((PASSED + FAILED + SKIPPED)) $PASSED $FAILED $SKIPPED $(($(date +%s) - BEGAN))"; }
ask() { # ask WHAT: has conformance/run do it, and counts it in N
  touch "/share/ctl/$1"; until [ -e "/share/ctl/$1.done" ]; do sleep 0.1; done; rm "/share/ctl/$1.done"; N=$((N + 1))
}
lock_services() { # what NLM needs on the client side
  mkdir -p /var/lib/nfs/sm /var/lib/nfs/sm.bak; rpcbind -w; rpc.statd --no-notify
}
mount_volume() { mkdir -p /mnt/n; mount -t nfs -o "${1:-$OPTS,nolock}" "$HOST:$EXP" /mnt/n; }
remount_volume() { umount /mnt/n && mount_volume "$@"; }
sources() { # sources DIRS FILES OBJECTS: things to work on in the machine's memory: $S/tree, $S/tree.tar, and a program in $S/build
  local d f i; S=/tmp/source; mkdir -p $S/tree $S/build || return 1
  for d in $(seq "$1"); do
    mkdir "$S/tree/d$d"
    for f in $(seq "$2"); do head -c $((f * 331 % 9000 + 1)) /dev/urandom >"$S/tree/d$d/f$f"; done
  done
  tar cf $S/tree.tar -C $S tree
  { printf 'OBJS ='; for i in $(seq "$3"); do printf ' f%s.o' "$i"; done; printf '\nall: prog\nprog: main.o $(OBJS)\n\t$(CC) -o $@ $^\n'; } >$S/build/Makefile
  { for i in $(seq "$3"); do echo "int f$i(int);"; done; echo '#include <stdio.h>'; echo 'int main(void) { int s = 0;'
    for i in $(seq "$3"); do echo "s += f$i(1);"; done; echo 'printf("%d\n", s); return 0; }'; } >$S/build/main.c
  for i in $(seq "$3"); do echo "int f$i(int x) { return x * $i; }" >"$S/build/f$i.c"; done
}
