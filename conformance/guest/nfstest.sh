# nfstest_posix over NFSv3.
. "$CONF/guest/lib.sh"
lock_services
export PYTHONPATH=$SUITES/nfstest PATH=/usr/bin:$PATH
printf '#!/bin/sh\nexec "$@"\n' >/usr/local/bin/sudo; chmod +x /usr/local/bin/sudo
echo tcpdump:x:999:999::/:/bin/false >>/etc/passwd; echo tcpdump:x:999: >>/etc/group
mkdir -p /mnt/t; cd "$SUITES/nfstest" || exit 1
/usr/bin/python3 test/nfstest_posix --server "$HOST" --port "$PORT" --export "$EXP" --nfsversion 3 --mtpoint /mnt/t \
  --filesize 65000 --mtopts "hard,mountport=$MOUNTPORT" >/share/nfstest_posix.log 2>&1
echo "# status $?"; grep -E '^[0-9]+ tests' /share/nfstest_posix.log
PASSED=$(grep -c '^ *PASS: ' /share/nfstest_posix.log) FAILED=$(grep -c '^ *FAIL: ' /share/nfstest_posix.log)
grep -q '^[0-9]* tests (' /share/nfstest_posix.log || bad incomplete "$(tail -n 1 /share/nfstest_posix.log)"
# The name of a check is its sentence, joined by dashes.
sed -n 's/^ *FAIL: //p' /share/nfstest_posix.log | while read -r l; do n=${l%% (*}; echo "FAIL ${n// /-} ${l#"$n"}"; done
finish
