ganesha.nfsd -F -L WORK/ganesha-2/ganesha.log -f WORK/ganesha-2/ganesha.conf -p WORK/ganesha-2/ganesha.pid -N NIV_EVENT
