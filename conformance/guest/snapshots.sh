# The directory of snapshots as the kernel client sees it. The host makes and deletes snapshots when it
# finds ctl/snapshot with "create NAME" or "delete NAME", and answers with ctl/snapshot.done.
. "$CONF/guest/lib.sh"
ctl() { # ctl VERB NAME
  rm -f /share/ctl/snapshot.done; echo "$*" >/share/ctl/snapshot.new; mv /share/ctl/snapshot.new /share/ctl/snapshot
  for _ in $(seq 300); do [ -e /share/ctl/snapshot.done ] && { grep -q '^ok' /share/ctl/snapshot.done; return; }; sleep 0.1; done
  return 1
}
check mount mount_volume || { finish; exit 1; }
cd /mnt/n || { finish; exit 1; }
mkdir -p d/e; echo first >d/e/f; ln -s e/f d/l; ln d/e/f d/hard; head -c 3000000 /dev/urandom >d/big; cp -a d /tmp/d; sync -f .
check make ctl create one
echo second >d/e/f; rm d/l; echo x >d/young; mkdir later; cp /dev/null d/big; sync -f .
check make-another ctl create two
check listed-in-root bash -c 'ls -a /mnt/n | grep -qx .snapshot'
check not-listed-below bash -c '! ls -a /mnt/n/d | grep -qx .snapshot'
[ "$(ls .snapshot | tr '\n' ' ')" = 'one two ' ] && ok names || bad names "$(ls .snapshot)"
[ "$(cat .snapshot/one/d/e/f)" = first ] && ok old-content || bad old-content "$(cat .snapshot/one/d/e/f)"
[ "$(cat .snapshot/two/d/e/f)" = second ] && ok newer-content || bad newer-content
check whole-tree diff -r --no-dereference /tmp/d .snapshot/one/d
check by-the-directory diff -r --no-dereference /tmp/d d/.snapshot/one
[ "$(ls later/.snapshot)" = two ] && ok young-directory || bad young-directory "$(ls later/.snapshot)"
[ "$(stat -c %i d/e/f)" = "$(stat -c %i .snapshot/one/d/e/f)" ] && ok file-id || bad file-id
[ "$(stat -c %d d/e/f)" != "$(stat -c %d .snapshot/one/d/e/f)" ] && ok own-file-system || bad own-file-system
[ "$(stat -c %h .snapshot/one/d/hard)" = 2 ] && ok links || bad links
for c in 'touch .snapshot/one/d/new' 'rm .snapshot/one/d/big' 'mkdir .snapshot/x' 'mv .snapshot/one/d/big .snapshot/one/d/b' 'chmod 600 .snapshot/one/d/big'; do
  refuses "read-only:${c// /_}" 'Read-only' bash -c "$c"
done
# Over NFSv3 the client asks by ACCESS first, over NFSv4 by the OPEN itself.
case $OPTS in *vers=4*) said='Read-only' ;; *) said=denied ;; esac
refuses write "$said" bash -c 'echo >.snapshot/one/d/e/f'
refuses rmdir 'busy' rmdir .snapshot/one # the client has mounted it there
check one-file-system bash -c '! find /mnt/n -xdev -name big | grep -q snapshot/'
check restore bash -c 'cp .snapshot/one/d/big d/big && cmp d/big /tmp/d/big'
cd /; check remount remount_volume; cd /mnt/n || exit
check after-remount cmp .snapshot/one/d/big /tmp/d/big
exec 3<.snapshot/one/d/big
check delete ctl delete one
echo 3 >/proc/sys/vm/drop_caches
refuses stale 'tale' cat /proc/self/fd/3
exec 3<&-
for _ in $(seq 100); do [ "$(ls .snapshot)" = two ] && break; sleep 1; done
[ "$(ls .snapshot)" = two ] && ok gone || bad gone "$(ls .snapshot)"
for i in $(seq 40); do ctl create "many-$i" || bad many "$i"; done
for _ in $(seq 100); do n=$(find .snapshot -mindepth 1 -maxdepth 1 | wc -l); [ "$n" = 41 ] && break; sleep 1; done
[ "$n" = 41 ] && ok many || bad many "$n"
check enter-all bash -c 'for s in .snapshot/*; do [ "$(cat $s/d/young)" = x ] || exit 1; done'
cd /; umount -R /mnt/n 2>/dev/null || umount -l /mnt/n
mountpoint -q /mnt/n && bad umount || ok umount
finish
