# Kerberos: mounts with krb5, krb5i and krb5p over NFSv4.2 and NFSv3. The realm is the host's (krb5/kdc.py). Root is the machine there, which
# is no user of the server; daemon has a ticket, games has none.
. "$CONF/guest/lib.sh"
[ -e "$KRB5/ready" ] || { bad realm "the server under test has none"; finish; exit 1; }
# Where users may read it, as whom gssd looks for their tickets.
install -m 644 "$KRB5/krb5.conf" /tmp/krb5.conf; export KRB5_CONFIG=/tmp/krb5.conf
install -m 600 -o daemon -g daemon "$KRB5/daemon.cache" "/tmp/krb5cc_$(id -u daemon)"
cp "$KRB5/client.keytab" /tmp/client.keytab
mkdir -p /run/pipefs && mount -t rpc_pipefs sunrpc /run/pipefs
modprobe rpcsec_gss_krb5 || bad module "rpcsec_gss_krb5"
rpc.gssd -f -k /tmp/client.keytab -p /run/pipefs >/tmp/gssd.log 2>&1 & gssd=$!
HOST=host # by its name, as its principal
as() { local who=$1; shift; setpriv --reuid "$who" --regid "$who" --clear-groups "$@"; }
REST=$(sed 's/vers=[^,]*,//; s/,mountport=[0-9]*//' <<<"$OPTS")
check mount-sys mount_volume "vers=4.2,$REST,sec=sys" || { finish; exit 1; }
chmod 777 /mnt/n; umount /mnt/n
for v in 4.2 3; do
  opts=vers=$v,$REST; [ $v != 3 ] || opts=$opts,mountport=$MOUNTPORT,nolock
  for f in krb5 krb5i krb5p; do
    n=$f-$v
    check "mount-$n" timeout 60 mount -t nfs -o "$opts,sec=$f" "$HOST:$EXP" /mnt/n
    mountpoint -q /mnt/n || continue
    check "flavour-$n" grep -q " /mnt/n .*sec=$f," /proc/mounts
    head -c 8000001 /dev/urandom >/tmp/data; chmod 644 /tmp/data
    check "write-$n" as daemon cp /tmp/data "/mnt/n/$n"
    check "owner-$n" bash -c "[ \$(stat -c %U /mnt/n/$n) = daemon ]"
    echo 3 >/proc/sys/vm/drop_caches
    check "read-$n" as daemon cmp /tmp/data "/mnt/n/$n"
    check "parallel-$n" as daemon bash -c "for i in \$(seq 16); do head -c 300000 /tmp/data >/mnt/n/p\$i & done; wait; cmp -n 300000 /tmp/data /mnt/n/p16 && rm /mnt/n/p*"
    check "private-$n" as daemon chmod 600 "/mnt/n/$n"
    # The machine is nobody there, and who has no ticket is kept out by the client itself, which calls that stale.
    check "machine-is-nobody-$n" bash -c "touch /mnt/n/m && [ \$(stat -c %u /mnt/n/m) = 65534 ] && rm /mnt/n/m"
    refuses "machine-reads-not-$n" 'Permission denied' cat "/mnt/n/$n"
    refuses "no-ticket-$n" Stale as games ls /mnt/n/
    [ $v = 3 ] || check "lock-$n" as daemon bash -c "exec 5>/mnt/n/$n; flock -n 5 && ! flock -n /mnt/n/$n true"
    check "remove-$n" as daemon rm "/mnt/n/$n"
    check "umount-$n" umount /mnt/n
  done
done
# The policy demands privacy: the client finds that out, and gets nothing with less.
policy() {
  rm -f /share/ctl/policy.done; echo "$1" >/share/ctl/policy.new; mv /share/ctl/policy.new /share/ctl/policy
  for _ in $(seq 300); do [ -e /share/ctl/policy.done ] && { grep -q '^ok' /share/ctl/policy.done; return; }; sleep 0.1; done
  return 1
}
check demand-privacy policy '[{"allowedClients":"*","nfsv3":true,"nfsv4":true,"hasRootAccess":"true","kerberos5pReadWrite":true}]'
for f in sys krb5 krb5i; do
  check "refused-$f" bash -c "! timeout 60 mount -t nfs -o vers=4.2,$REST,sec=$f $HOST:$EXP /mnt/n"
  umount /mnt/n 2>/dev/null
done
check mount-as-demanded timeout 60 mount -t nfs -o "vers=4.2,$REST" "$HOST:$EXP" /mnt/n
check flavour-as-demanded grep -q ' /mnt/n .*sec=krb5p,' /proc/mounts
check write-as-demanded as daemon cp /tmp/data /mnt/n/last
umount /mnt/n
sed 's/^/# gssd: /' /tmp/gssd.log | tail -5
kill $gssd
finish
