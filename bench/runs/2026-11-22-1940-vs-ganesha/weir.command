weir serve --data WORK/weir-lookup-2/data --nfs 127.0.0.1:22051 --no-rpcbind --api off --ready-file WORK/weir-lookup-2/ready
