# The server is killed with -9 again and again under everyday jobs: an archive unpacked, a program built, a database filled, over
# a hard mount. No job may notice but by waiting, and nothing that was finished may be missing. NFSv4: over NFSv3 names and locks
# are no part of what a client may repeat.
. "$CONF/guest/lib.sh"
mount_volume || { bad mount; finish; exit 1; }
sources 20 60 10 || exit 1
cat >$S/fill.py <<'PY'
# Commits transactions until it is told to end, and writes down beside the mount how many it was told are committed.
import os, sqlite3, sys
c = sqlite3.connect("/mnt/n/db", isolation_level=None, timeout=600)
c.execute("create table t(a integer primary key, b text)")
n = 0
while not os.path.exists("/tmp/end"):
    c.execute("begin immediate")
    for _ in range(5):
        c.execute("insert into t(b) values(?)", ("x" * 300,))
    c.execute("commit")
    n += 5
    with open("/tmp/committed.new", "w") as f:
        f.write(str(n))
    os.rename("/tmp/committed.new", "/tmp/committed")
PY
cd /mnt/n || exit 1
rm -f /tmp/end
( r=0; i=0
  until [ -e /tmp/end ]; do i=$((i + 1))
    tar xf $S/tree.tar && diff -r $S/tree tree && mv tree "kept$((i % 2))" && rm -rf "kept$(((i + 1) % 2))" || { r=1; break; }
  done >/share/jobs-untar.log 2>&1; echo "$r $i" >/tmp/untar.rc ) & untar=$!
( r=0; i=0
  until [ -e /tmp/end ]; do i=$((i + 1))
    cp -r $S/build build && make -s -C build && [ "$(build/prog)" = 55 ] && rm -rf build || { r=1; break; }
  done >/share/jobs-make.log 2>&1; echo "$r $i" >/tmp/make.rc ) & make=$!
( python3 $S/fill.py >/share/jobs-sqlite.log 2>&1; echo $? >/tmp/sqlite.rc ) & sqlite=$!
N=0
while [ $N -lt "$CRASHES" ]; do
  sleep $((RANDOM % 4 + 2)).$((RANDOM % 10))
  ask crash
done
touch /tmp/end; wait $untar $make $sqlite
read -r r i </tmp/untar.rc; [ "$r" = 0 ] && ok untar || bad untar "$(tail -n 2 /share/jobs-untar.log | tr '\n' ' ')"; echo "# unpacked and compared $i times"
read -r r i </tmp/make.rc; [ "$r" = 0 ] && ok make || bad make "$(tail -n 2 /share/jobs-make.log | tr '\n' ' ')"; echo "# built $i times"
[ "$(cat /tmp/sqlite.rc)" = 0 ] && ok sqlite || bad sqlite "$(tail -n 1 /share/jobs-sqlite.log)"
cd / && remount_volume || bad remount
want=$(cat /tmp/committed)
got=$(python3 -c 'import sqlite3; c = sqlite3.connect("/mnt/n/db"); assert c.execute("pragma integrity_check").fetchone() == ("ok",); print(c.execute("select count(*) from t").fetchone()[0])')
[ "$got" -ge "$want" ] && ok "committed" || bad committed "$got rows of $want"
echo "# $N crashes, $want rows committed"
rm -rf /mnt/n/kept* /mnt/n/tree /mnt/n/build /mnt/n/db*; umount /mnt/n; finish
