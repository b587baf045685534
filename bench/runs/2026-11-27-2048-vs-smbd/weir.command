weir2 serve --data /var/tmp/weir-bench-25490/weir-names-1/data --nfs 127.0.0.1:22446 --no-rpcbind --api off --ready-file /var/tmp/weir-bench-25490/weir-names-1/ready --smb 127.0.0.1:22445
