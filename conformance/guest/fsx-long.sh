# The C fsx and the Rust one over and over for FSX_MINUTES, each time with another seed and in another way: over NFS with delegations and
# all its connections or, with FSX_FS=cifs, over SMB as mounted in one way after another. A run that fails leaves its log.
. "$CONF/guest/lib.sh"
modprobe cifs 2>/dev/null || true
c=$SUITES/xfstests/ltp/fsx r=$SUITES/fsx-rs/bin/fsx
for program in "$c" "$r"; do [ -x "$program" ] || { bad suites "no $program"; finish; exit 1; }; done
mkdir -p /mnt/n
case ${FSX_FS:-nfs} in
  cifs) WAYS=("" ,seal ,sign ,multichannel,max_channels=8 ,posix ,cache=none) ;;
  *) WAYS=(,nolock ,nolock,noac) ;;
esac
volume() { # volume WAY
  case ${FSX_FS:-nfs} in
    cifs) mount -t cifs -o "vers=3.1.1,port=$SMBPORT,username=mouse,password=Cheese-4-Mice,noperm$1" "//$HOST$EXP" /mnt/n ;;
    *) mount_volume "$OPTS$1" ;;
  esac
}
end=$(($(date +%s) + ${FSX_MINUTES:-10} * 60)) seed=$((RANDOM * 32768 + RANDOM)) turn=0 total=0
while [ "$(date +%s)" -lt "$end" ]; do
  way=${WAYS[turn % ${#WAYS[@]}]}
  volume "$way" || { bad "mount$way" "$(dmesg | tail -n 1)"; break; }
  # cifs of Linux 6.1 fills holes for fallocate from one buffer of zeros and encrypts it in place: from the second hole on it sends what
  # came of that.
  more=(); [ "$way" != ,seal ] || more=(-F)
  # Without a cache it may map pages that it had before a write went past them: fsx's mapped reads fail over smbd at the same operation.
  hows="buffered close-to-open direct rust"; [ "$way" != ,cache=none ] || more=(-R -W) hows="buffered close-to-open direct"
  for how in $hows; do
    seed=$((seed + 1)) log=/share/fsx-long.$seed f=/mnt/n/fsx.$seed n=20000
    case $how in
      buffered) run=("$c" -q -S "$seed" -N $n -l 1048576 "${more[@]}" "$f") ;;
      close-to-open) run=("$c" -q -S "$seed" -N $n -c 100 -l 262144 "${more[@]}" "$f") ;;
      direct) run=("$c" -q -S "$seed" -N $n -l 1048576 -Z -R -W -r 4096 -w 4096 "${more[@]}" "$f") ;;
      rust) run=("$r" -S "$seed" -N $n "$f") ;;
    esac
    if "${run[@]}" >"$log" 2>&1; then total=$((total + n)); rm -f "$log" "$f"*; ok "$how$way"
    else bad "$how$way" "seed $seed: $(tail -n 1 "$log")"; fi
    [ "$(date +%s)" -lt "$end" ] || break
  done
  umount /mnt/n || { bad "umount$way"; break; }
  turn=$((turn + 1))
done
echo "# fsx-long: $total operations"
finish
