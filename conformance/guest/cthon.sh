# The Connectathon suites: basic, general, special, lock.
. "$CONF/guest/lib.sh"
lock_services
mount_volume "$OPTS" || { bad mount; finish; exit 1; }
cp -a "$SUITES/cthon04" /tmp/c && cd /tmp/c || exit 1
export MNTOPTIONS=$OPTS
for t in basic general special lock; do
  s=$(date +%s); mkdir -p /mnt/n/ct
  if NFSTESTDIR=/mnt/n/ct/$t ./runtests "-${t:0:1}" -f >"/share/cthon-$t.log" 2>&1; then ok $t; else bad $t "$(tail -n 3 "/share/cthon-$t.log" | tr '\n' ' ')"; fi
  echo "# $t: $(($(date +%s) - s)) s"; rm -rf /mnt/n/ct
done
umount /mnt/n; finish
