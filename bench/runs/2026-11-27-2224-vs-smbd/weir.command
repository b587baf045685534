weir serve --data /var/tmp/weir-bench-18713/weir-names-2/data --nfs 127.0.0.1:22446 --no-rpcbind --api off --ready-file /var/tmp/weir-bench-18713/weir-names-2/ready --smb 127.0.0.1:22445
