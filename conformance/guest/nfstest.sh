# nfstest with the version of the mount: posix, over NFSv4 lock too. NFSTEST=NAMES runs others, which read packet traces or
# need a second client.
. "$CONF/guest/lib.sh"
lock_services
V=$(sed -n 's/.*vers=\([0-9.]*\).*/\1/p' <<<"$OPTS") MORE=
case $V in
  3) TESTS=posix MORE=,mountport=$MOUNTPORT ;;
  *) TESTS="posix lock" ;;
esac
export PYTHONPATH=$SUITES/nfstest PATH=/usr/bin:$PATH
printf '#!/bin/sh\nexec "$@"\n' >/usr/local/bin/sudo; chmod +x /usr/local/bin/sudo
echo tcpdump:x:999:999::/:/bin/false >>/etc/passwd; echo tcpdump:x:999: >>/etc/group
mkdir -p /mnt/t; cd "$SUITES/nfstest" || exit 1
for t in ${NFSTEST:-$TESTS}; do
  log=/share/nfstest_$t.log s=$(date +%s) SIZE=
  # The tests of packets count on the size that they have by themselves.
  [ "$t" != posix ] || SIZE="--filesize 65000"
  "${NFSTEST_PYTHON:-/usr/bin/python3}" "test/nfstest_$t" --server "$HOST" --port "$PORT" --export "$EXP" --nfsversion "$V" --mtpoint /mnt/t \
    $SIZE --mtopts "hard$MORE" >"$log" 2>&1
  echo "# nfstest_$t: status $?, $(($(date +%s) - s)) s, $(grep -E '^[0-9]+ tests' "$log")"
  PASSED=$((PASSED + $(grep -c '^ *PASS: ' "$log"))) FAILED=$((FAILED + $(grep -c '^ *FAIL: ' "$log")))
  grep -q '^[0-9]* tests (' "$log" || bad "incomplete-$t" "$(tail -n 1 "$log")"
  # The name of a check is its sentence, joined by dashes.
  sed -n 's/^ *FAIL: //p' "$log" | while read -r l; do n=${l%% (*}; echo "FAIL ${n// /-} ${l#"$n"}"; done
done
finish
