# NFS over TLS where the kernel goes on with it: server and client are in this machine, whose kernel has TLS.
. "$CONF/guest/lib.sh"
modprobe tls || { bad kernel "has no TLS"; finish; exit; }
counted() { awk -v name="$1" '$1 == name { print $2 }' /proc/net/tls_stat; }
ip link set lo up
for test in $("$TLS_TESTS" --list --format terse | sed -n 's/: test$//p'); do
  check "$test" "$TLS_TESTS" --exact "$test" --test-threads 1
done
for direction in TlsTxSw TlsRxSw; do
  count=$(counted $direction)
  if [ "$count" -gt 0 ]; then ok "$direction"; else bad "$direction" "the kernel has had no connection"; fi
done
check errors test "$(counted TlsDecryptError)" -le 1 # The one of a record that a test changes.
finish
