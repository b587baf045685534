# How conformance/run starts, crashes and stops each server under test. Sourced; uses HOST, PORT, WORK,
# OUT, WEIR; sets EXPORT, MOUNTPORT, OPTS and keeps the server's process id in $WORK/server.pid.
#
# Weir serves SMB on a port beside. It serves NFS, MOUNT, NLM and NSM on one port. The references use ports of their own for the
# latter three; the mount options name what differs and rpcbind carries the rest.
EXPORT=/vol1 MOUNTPORT=$PORT
[ "$SERVER" = weir ] || EXPORT=$WORK/data MOUNTPORT=20048
case $SERVER in knfsd) HOST=10.99.9.2 PORT=2049 EXPORT=/export ;; esac
OPTS="vers=$VERS,tcp,port=$PORT,nconnect=${NCONNECT:-16},hard,timeo=600"
[ "$VERS" != 3 ] || OPTS=$OPTS,mountport=$MOUNTPORT

# rpc.statd and sm-notify want their own address to have a name.
{ cat /etc/hosts; echo "$HOST confserver"; for i in $(seq 2 9); do echo "10.99.0.$i c$i.clients.test"; done; } >"$WORK/hosts" && mount --bind "$WORK/hosts" /etc/hosts

wait_port() { # until something accepts on $HOST:$1
  local i; for i in $(seq 300); do
    (exec 3<>"/dev/tcp/$HOST/$1") 2>/dev/null && return 0
    sleep 0.1
  done
  echo "the server does not listen on $HOST:$1" >&2; tail -n 20 "$OUT/server.log" >&2; return 1
}
start_server() {
  case $SERVER in
    weir)
      # shellcheck disable=SC2086 # WEIR_ARGS is a list
      "$WEIR" serve --data "$WORK/data" --nfs "$HOST:$PORT" --smb "$HOST:$SMBPORT" ${WEIR_ARGS:-} >>"$OUT/server.log" 2>&1 &
      echo $! >"$WORK/server.pid"; disown ;;
    ganesha)
      # Ganesha leaves the status monitor to rpc.statd; a crash of the server is one of the machine,
      # so the monitor comes back with it and tells the clients to reclaim.
      [ ! -e /run/rpc.statd.pid ] || kill "$(cat /run/rpc.statd.pid)" 2>/dev/null || true
      rpc.statd --no-notify && sm-notify -f -v confserver
      mkdir -p /run/ganesha /var/lib/nfs/ganesha "$WORK/data"
      sed "s#@DATA@#$WORK/data#; s#@PORT@#$PORT#; s#@MOUNTPORT@#$MOUNTPORT#" "$HERE/ganesha.conf" >"$WORK/ganesha.conf"
      ganesha.nfsd -F -f "$WORK/ganesha.conf" -L "$OUT/server.log" -p /run/ganesha.pid >>"$OUT/server.log" 2>&1 &
      echo $! >"$WORK/server.pid"; disown
      wait_port "$MOUNTPORT" || return 1 ;;
    knfsd) # a second virtual machine is the server: the kernel this runs on may have none
      echo 1 >/proc/sys/net/ipv4/ip_forward
      truncate -s 8G "$WORK/data/disk" && mkfs.ext4 -q -F -E lazy_itable_init=0 "$WORK/data/disk"
      "$VMCLIENT" -i 9 -t 20000 -s "$WORK/data" -e "KNFSD=${KNFSD:?folder of the unpacked nfs-kernel-server package}" \
        "$HERE/guest/knfsd-server.sh" >>"$OUT/server.log" 2>&1 &
      echo $! >"$WORK/server.pid"; disown ;;
  esac
  wait_port "$PORT" || return 1
  [ "$SERVER" = weir ] || return 0
  local i; for i in $(seq 100); do # its folder is made after it listens
    [ -e "$WORK/data/smb-users" ] && return 0
    echo Cheese-4-Mice | "$WEIR" users create mouse --uid 0 --data "$WORK/data" >>"$OUT/server.log" 2>&1 || sleep 0.1
  done
  echo "no user could be made" >&2; return 1
}
server_alive() { kill -0 "$(cat "$WORK/server.pid")" 2>/dev/null; }
# A process is gone when it is no more, or a zombie all of whose threads have ended: until then its
# sockets and locks stay.
gone() {
  local t=("/proc/$1/task/"*)
  [ ! -d "/proc/$1" ] || { [ ${#t[@]} -le 1 ] && grep -q '^State:.*Z' "/proc/$1/status" 2>/dev/null; }
}
crash_server() { # returns when the process is gone
  local p; p=$(cat "$WORK/server.pid")
  kill -9 "$p" 2>/dev/null || true
  until gone "$p"; do sleep 0.05; done
}
stop_server() {
  local p; p=$(cat "$WORK/server.pid")
  kill "$p" 2>/dev/null || true
  for _ in $(seq 300); do
    ! gone "$p" || return 0
    sleep 0.1
  done
  echo "UNEXPECTED the server did not stop within 30 s of SIGTERM"; kill -9 "$p"
}

# Makes or deletes a snapshot of the volume, by the server's API on the loopback address.
snapshot_of_server() { # create|delete NAME
  local of=http://127.0.0.1:8049/v1/projects/weir/locations/local/volumes/vol1/snapshots
  case $SERVER:$1 in
    weir:create) curl -fsS -X POST -H 'Content-Type: application/json' -d '{}' "$of?snapshotId=$2" ;;
    weir:delete) curl -fsS -X DELETE "$of/$2" ;;
    *) echo "no snapshots here" >&2; return 1 ;;
  esac
}

# Gives the volume the export policy with the rules that stand in a file.
policy_of_server() { # FILE
  [ "$SERVER" = weir ] || { echo "no policies here" >&2; return 1; }
  volume_of_server exportPolicy "{\"rules\":$(cat "$1")}"
}

# Gives the volume's share these settings, quoted and with commas between, in place of others.
smb_settings_of_server() { # SETTINGS
  local i; for i in $(seq 100); do # the API listens a moment later
    volume_of_server smbSettings "[$1]" && return 0
    sleep 0.1
  done
  return 1
}

# Changes a field of the volume, and waits until that is in force.
volume_of_server() { # FIELD JSON
  local api=http://127.0.0.1:8049/v1 operation
  operation=$(curl -fsS -X PATCH -H 'Content-Type: application/json' -d "{\"$1\":$2}" \
    "$api/projects/weir/locations/local/volumes/vol1?updateMask=$1") || { echo "$operation"; return 1; }
  for _ in $(seq 100); do
    [[ $operation != *'"error"'* ]] || { echo "$operation"; return 1; }
    [[ $operation != *'"done":true'* ]] || return 0
    sleep 0.1
    operation=$(curl -fsS "$api/$(grep -o 'projects/[^"]*/operations/[^"]*' <<<"$operation" | head -n 1)")
  done
  echo "it does not end: $operation"; return 1
}
