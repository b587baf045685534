# A tree of small files copied, compared, archived and removed; a small C program built by make; git.
. "$CONF/guest/lib.sh"
mount_volume || { bad mount; finish; exit 1; }
list() { (cd "$1" && find . -printf '%P %y %m %U %G %s %n %l\n' | sed '1d' | awk '$2=="d"{$6="-";$7="-"}{print}' | sort); }
cd /mnt/n || exit 1
check copy cp -a "$TREE" tree
list "$TREE" >/tmp/want; list tree >/tmp/got
check attributes diff /tmp/want /tmp/got
echo "# $(wc -l </tmp/want) entries"
cd / && check remount remount_volume && cd /mnt/n || exit 1
check contents diff -r --no-dereference "$TREE" tree
list tree >/tmp/got; check attributes-after-remount diff /tmp/want /tmp/got
check tar bash -c 'tar cf tree.tar tree && mkdir out && tar xpf tree.tar -C out && diff -r --no-dereference tree out/tree'
mkdir build && cd build && {
  printf 'OBJS =' ; for i in $(seq 20); do printf ' f%s.o' "$i"; done; printf '\nall: prog\nprog: main.o $(OBJS)\n\t$(CC) -o $@ $^\nclean:\n\trm -f *.o prog\n'
} >Makefile
{ for i in $(seq 20); do echo "int f$i(int);"; done; echo '#include <stdio.h>'; echo 'int main(void) { int s = 0;'
  for i in $(seq 20); do echo "s += f$i($i);"; done; echo 'printf("%d\n", s); return 0; }'; } >main.c
for i in $(seq 20); do printf '#include <stdlib.h>\nint f%s(int x) { return abs(x) * %s; }\n' "$i" "$i" >"f$i.c"; done
check make make -j2
[ "$(./prog)" = 2870 ] && ok run-what-was-built || bad run-what-was-built
check make-again-does-nothing bash -c 'make | grep -q "Nothing to be done"'
sleep 1; touch f7.c; [ "$(make | grep -c -- '-c')" = 1 ] && ok rebuild-one || bad rebuild-one
check make-clean make clean
cd ..
if command -v git >/dev/null; then
  check git bash -c 'git init -q repo && cd repo && cp ../build/* . && git add -A && git -c user.name=a -c user.email=a@b commit -qm x && git fsck --strict && cd .. && git clone -q repo clone && diff -r -x .git repo clone'
fi
check remove rm -rf tree out tree.tar build repo clone
# The directory of snapshots is listed while there is one; what was copied is gone all the same.
left=$(ls -A | grep -vx .snapshot | head); [ -z "$left" ] && ok empty || bad empty "$left"
cd /; umount /mnt/n; finish
