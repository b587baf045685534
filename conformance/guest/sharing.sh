# Two machines over NFSv4 at once, roles a and b: locks.py, then files, delegations and locks that both want (sharing.py).
. "$CONF/guest/lib.sh"
V=$(sed -n 's/.*vers=\([0-9.]*\).*/\1/p' <<<"$OPTS")
[ "$V" != 3 ] || { skip "sharing is of NFSv4"; finish; exit 0; }
mount_volume "$OPTS" || { bad mount; finish; exit 1; }
mkdir -p /share/ctl/sharing
python3 "$CONF/guest/locks.py" "$ROLE" /mnt/n /share/ctl >/tmp/out; cat /tmp/out
python3 "$CONF/guest/sharing.py" "$ROLE" /mnt/n /share/ctl >/tmp/out2; cat /tmp/out2
PASSED=$(cat /tmp/out /tmp/out2 | grep -c '^ok ') FAILED=$(cat /tmp/out /tmp/out2 | grep -c '^FAIL ')
umount /mnt/n; finish
