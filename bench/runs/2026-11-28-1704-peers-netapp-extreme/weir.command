weir serve --data WORK/weir-2/data --nfs 127.0.0.1:22051 --no-rpcbind --api off --ready-file WORK/weir-2/ready
