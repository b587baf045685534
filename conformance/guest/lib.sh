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
lock_services() { # what NLM needs on the client side
  mkdir -p /var/lib/nfs/sm /var/lib/nfs/sm.bak; rpcbind -w; rpc.statd --no-notify
}
mount_volume() { mkdir -p /mnt/n; mount -t nfs -o "${1:-$OPTS,nolock}" "$HOST:$EXP" /mnt/n; }
remount_volume() { umount /mnt/n && mount_volume "$@"; }
