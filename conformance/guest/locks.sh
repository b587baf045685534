# Roles of locks.py; see there. The machine of "dies" keeps its status monitor's folder on the host, so
# that "reborn" finds whom it has to notify.
. "$CONF/guest/lib.sh"
if [ "$ROLE" = dies ] || [ "$ROLE" = reborn ]; then
  mkdir -p /share/statd/sm /share/statd/sm.bak; chown -R statd /share/statd
  mount -t tmpfs tmpfs /var/lib/nfs; cp -a /share/statd/. /var/lib/nfs/; chown -R statd /var/lib/nfs
fi
if [ "$ROLE" = reborn ]; then
  rpcbind -w; rpc.statd --no-notify; sm-notify -f; sleep 3; exit 0
fi
lock_services
mount_volume "$OPTS" || { bad mount; finish; exit 1; }
if [ "$ROLE" = dies ]; then
  python3 "$CONF/guest/locks.py" dies /mnt/n /share/ctl &
  until [ -e /share/ctl/locked ]; do sleep 0.2; done
  cp -a /var/lib/nfs/. /share/statd/; sync -f /share
  exec /usr/bin/busybox poweroff -f # the machine dies; its lock stays with the server
fi
python3 "$CONF/guest/locks.py" "$ROLE" /mnt/n /share/ctl >/tmp/out; cat /tmp/out
PASSED=$(grep -c '^ok ' /tmp/out) FAILED=$(grep -c '^FAIL ' /tmp/out)
umount /mnt/n; finish
