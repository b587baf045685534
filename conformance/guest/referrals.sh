# Referrals: paths of this server for which another one, on REFPORT, has the files.
. "$CONF/guest/lib.sh"
mkdir -p /mnt/n /mnt/m
options="${OPTS%%,nconnect*},hard"
check mount-of-the-other-server mount -t nfs4 -o "${options/port=$PORT/port=$REFPORT}" "$HOST:/vol1" /mnt/m
echo there >/mnt/m/file
check mount-of-the-root mount -t nfs4 -o "$options" "$HOST:/" /mnt/n
check listing test "$(ls /mnt/n)" = "$(printf 'far\nnear\nvol1')"
check listing-with-attributes ls -l /mnt/n
check file-of-the-other-server grep -q there /mnt/n/far/file
echo more >>/mnt/n/far/file && sync -f /mnt/n/far
check what-is-written-is-there bash -c 'for i in $(seq 50); do grep -q more /mnt/m/file && exit 0; sleep 0.1; done; exit 1'
check is-a-mount-of-its-own grep -q "^$HOST:/vol1 /mnt/n/far nfs4" /proc/mounts
check deeper-one grep -q more /mnt/n/near/by/file
check own-volume bash -c 'echo here >/mnt/n/vol1/own && ! test -e /mnt/m/own'
check renaming-across-servers-fails bash -c '! mv -n --no-copy /mnt/n/vol1/own /mnt/n/far/own 2>/dev/null; test -e /mnt/n/vol1/own'
rm /mnt/n/vol1/own; umount /mnt/n/far /mnt/n/near/by /mnt/n
check mount-of-a-referral mount -t nfs4 -o "$options" "$HOST:/far" /mnt/n
check file-below-it grep -q more /mnt/n/file
umount /mnt/n
check one-of-two-places-is-nowhere mount -t nfs4 -o "$options" "$HOST:/near/by" /mnt/n
check file-below-that grep -q more /mnt/n/file
umount /mnt/n
refuses over-nfsv3 '' mount -t nfs -o "vers=3,tcp,port=$PORT,mountport=$PORT,nolock" "$HOST:/far" /mnt/n
umount /mnt/m
finish
