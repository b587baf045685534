# How long everyday jobs of one program at a time take: no test but that each succeeds. Lines
# "TIME job seconds" are what bench/one-client/kernel reads. With BUSY=1 a neighbour on the same
# mount writes stable blocks of 256 KiB all the while.
. "$CONF/guest/lib.sh"
mount_volume || { bad mount; finish; exit 1; }
sources 30 99 40 && cd $S || exit 1
command -v git >/dev/null && { git init -q repo && cp -r tree/d1 tree/d2 tree/d3 tree/d4 tree/d5 repo/ && git -C repo add -A && git -C repo -c user.name=a -c user.email=a@b commit -qm x; } >/dev/null
timed() { # timed JOB COMMAND...
  local job=$1 from to; shift; sync -f /mnt/n 2>/dev/null || true
  from=$(date +%s.%N)
  check "$job" "$@"
  to=$(date +%s.%N)
  awk -v j="$job" -v a="$from" -v b="$to" 'BEGIN{printf "TIME %s %.3f\n", j, b - a}'
}
cd /mnt/n || exit 1
if [ -n "${BUSY:-}" ]; then
  while :; do dd if=/dev/zero of=neighbour bs=256k count=1024 oflag=dsync conv=notrunc status=none || break; done & neighbour=$!
fi
timed untar tar xf $S/tree.tar
timed find-ls sh -c 'find tree -ls >/dev/null'
timed cp-a cp -a tree copy
timed rm-rf rm -rf tree copy
[ ! -d $S/repo ] || timed git-clone git clone -q $S/repo clone
cp -r $S/build build && timed make make -C build
if command -v python3 >/dev/null; then
  for mode in delete truncate wal; do
    # WAL needs shared memory: not over NFS unless one process locks the file for itself.
    timed "sqlite-$mode" python3 -c "
import sqlite3
c = sqlite3.connect('/mnt/n/$mode.db', isolation_level=None)
c.execute('pragma locking_mode=exclusive')
c.execute('pragma journal_mode=$mode')
c.execute('create table t(a integer primary key, b text)')
for i in range(200):
    c.execute('insert into t(b) values(?)', ('x' * 300,))
assert c.execute('select count(*) from t').fetchone() == (200,)
c.close()"
  done
fi
[ -z "${BUSY:-}" ] || { kill "$neighbour"; wait "$neighbour"; } 2>/dev/null
rm -rf clone build ./*.db* neighbour
cd /; umount /mnt/n; finish
