//! `vserver export-policy check-access`.

use super::*;

/// Returns what `check-access` says of `SVM:a`: the line of each path, its columns by one blank.
fn checked(station: &Station, arguments: &str) -> Vec<String> {
    let line = format!(
        "vserver export-policy check-access -vserver SVM -volume a -protocol nfs3 {arguments}"
    );
    let text = station.says(&line);
    let rows = text.lines().filter(|line| line.starts_with('/'));
    rows.map(|row| row.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect()
}

#[test]
fn the_rule_that_decides_is_named() {
    let station = Station::new(60);
    let read = "-authentication-method sys -access-type read -client-ip 10.1.2.3";
    let write = "-authentication-method sys -access-type read-write -client-ip 10.1.2.3";
    let admitted = ["/a default a volume 1 read-write"];
    assert_eq!(checked(&station, write), admitted);
    for line in [
        "vserver export-policy create -vserver SVM -policyname web",
        "vserver export-policy rule create -vserver SVM -policyname web -clientmatch 11.0.0.0/8,12.0.0.0/8 -rorule sys -rwrule sys -ruleindex 3",
        "vserver export-policy rule create -vserver SVM -policyname web -clientmatch 10.0.0.0/8 -rorule sys -rwrule never -ruleindex 7",
        "vserver export-policy create -vserver SVM -policyname build",
        "vserver export-policy rule create -vserver SVM -policyname build -clientmatch 10.1.0.0/16 -rorule sys -rwrule sys",
        "volume modify -vserver SVM -volume a -policy web",
        "volume qtree create -vserver SVM -volume a -qtree q",
        "volume qtree create -vserver SVM -volume a -qtree own -export-policy build",
    ] {
        station.does(line);
    }
    assert_eq!(checked(&station, read), ["/a web a volume 7 read"]);
    assert_eq!(checked(&station, write), ["/a web a volume 7 denied"]);
    let second = write.replace("10.1.2.3", "12.0.0.1");
    assert_eq!(checked(&station, &second), ["/a web a volume 3 read-write"]);
    let stranger = read.replace("10.1.2.3", "192.168.0.1");
    assert_eq!(checked(&station, &stranger), ["/a web a volume 0 denied"]);
    let kerberos = read.replace("sys", "krb5");
    assert_eq!(checked(&station, &kerberos), ["/a web a volume 7 denied"]);
    assert_eq!(
        checked(&station, &format!("{write} -qtree q")),
        ["/a web a volume 7 denied", "/a/q web a volume 7 denied"]
    );
    // Through the volume a client has to read; what it may change the qtree's policy says.
    assert_eq!(
        checked(&station, &format!("{write} -qtree own")),
        [
            "/a web a volume 7 read",
            "/a/own build own qtree 1 read-write"
        ]
    );
    assert_eq!(
        checked(&station, &format!("{second} -qtree own")),
        ["/a web a volume 3 read", "/a/own build own qtree 0 denied"]
    );
}

#[test]
fn what_cannot_be_checked_says_why() {
    let station = Station::new(61);
    let line = "vserver export-policy check-access -vserver SVM -volume a -client-ip 10.1.2.3 \
                -authentication-method sys -protocol nfs3 -access-type read";
    for (of, by, why) in [
        ("-volume a", "-volume z", "no entries matching"),
        ("10.1.2.3", "host", "invalid value for field \"-client-ip"),
        ("nfs3", "cifs", "Export policies are for NFS"),
        ("nfs3", "nfs5", "(valid: nfs3|nfs4)"),
        ("sys", "ntlm", "(valid: none|sys|krb5|krb5i|krb5p)"),
        (
            "-access-type read",
            "-access-type denied",
            "(valid: read|read-write)",
        ),
        ("nfs3", "nfs3 -qtree none", "no entries matching"),
    ] {
        let said = station.says(&line.replace(of, by));
        assert!(said.contains(why), "{by}: {said}");
    }
    station.does("volume offline -vserver SVM -volume a");
    let said = station.says(line);
    assert!(said.contains("No client reaches the volume"), "{said}");
}
