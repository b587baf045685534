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
# tcpdump gathers packets for a second and more, and the tests look at what it has written right after a call. With the buffer that they give it
# by themselves this machine runs out of memory.
printf '#!/bin/sh\nexec /usr/bin/tcpdump --immediate-mode -U "$@"\n' >/usr/local/bin/tcpdump-at-once; chmod +x /usr/local/bin/tcpdump-at-once
echo tcpdump:x:999:999::/:/bin/false >>/etc/passwd; echo tcpdump:x:999: >>/etc/group
# clone_blksize has 32 bits (RFC 7862 section 12.2.1), of which it reads 64, and then nothing of the attributes.
sed -i 's/^\(fattr4_clone_blksize *= \)uint64_t/\1uint32_t/' "$SUITES/nfstest/packet/nfs/nfs4.py"
# Its clock begins before the second machine has opened the file; a delegation that this recalls brings attributes back, which count from then.
sed -i 's/sleep(self.justbefore)/sleep(self.justbefore + 0.5)/' "$SUITES/nfstest/test/nfstest_cache"
second_machine() { # a client beside this one: what "ssh second" reaches has a network, mounts and a name of its own, so it shares nothing cached
  local s; modprobe veth; unshare -n -m -u sleep infinity >/dev/null 2>&1 & s=$!
  while [ "$(readlink /proc/$s/ns/uts)" = "$(readlink /proc/self/ns/uts)" ]; do sleep 0.1; done
  ip link add second type veth peer name eth0 netns $s; ip addr add 10.99.0.9/30 dev second; ip link set second up; sysctl -qw net.ipv4.ip_forward=1
  nsenter -t $s -n -u sh -c 'hostname second; ip link set lo up; ip addr add 10.99.0.10/30 dev eth0; ip link set eth0 up; ip route add default via 10.99.0.9'
  echo 10.99.0.10 second >>/etc/hosts
  printf '#!/bin/sh\nwhile [ $# -gt 1 ]; do shift; done\nexec nsenter -t %s -n -m -u sh -c "$1" 2>&1\n' $s >/usr/bin/ssh; chmod +x /usr/bin/ssh
}
mkdir -p /mnt/t; mkdir -p -m 1777 /share/traces; cd "$SUITES/nfstest" || exit 1
for t in ${NFSTEST:-$TESTS}; do
  log=/share/nfstest_$t.log s=$(date +%s) SIZE=
  # Their second client, of this machine, mounts with another version.
  CLIENT=; case $t in cache) second_machine; CLIENT="--client second" ;; xattr | delegation) CLIENT="--client nfsversion=4.1:proto=tcp:port=$PORT --client-nfsvers 4.1" ;; esac
  # The tests of packets count on the size that they have by themselves.
  [ "$t" != posix ] || SIZE="--filesize 65000"
  "${NFSTEST_PYTHON:-/usr/bin/python3}" "test/nfstest_$t" --server "$HOST" --port "$PORT" --export "$EXP" --nfsversion "$V" --mtpoint /mnt/t \
    $SIZE $CLIENT --tcpdump /usr/local/bin/tcpdump-at-once --tbsize 8k --tmpdir /share/traces --mtopts "hard$MORE" >"$log" 2>&1
  echo "# nfstest_$t: status $?, $(($(date +%s) - s)) s, $(grep -E '^[0-9]+ tests' "$log")"
  PASSED=$((PASSED + $(grep -c '^ *PASS: ' "$log"))) FAILED=$((FAILED + $(grep -c '^ *FAIL: ' "$log")))
  grep -q '^[0-9]* tests (' "$log" || bad "incomplete-$t" "$(tail -n 1 "$log")"
  rm -rf /share/traces/*
  # The name of a check is its sentence, joined by dashes.
  sed -n 's/^ *FAIL: //p' "$log" | while read -r l; do n=${l%% (*}; echo "FAIL ${n// /-} ${l#"$n"}"; done
done
finish
