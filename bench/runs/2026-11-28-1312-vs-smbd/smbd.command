smbd --foreground --no-process-group -s /var/tmp/weir-bench-17233/smbd-names-2/smb.conf
