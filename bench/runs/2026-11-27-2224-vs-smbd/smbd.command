smbd --foreground --no-process-group -s /var/tmp/weir-bench-18713/smbd-names-2/smb.conf
