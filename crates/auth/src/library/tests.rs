//! Contexts established with a key distribution centre of the test's own (MIT krb5's). Both sides
//! are in this process: the initiator is the library, the acceptor the code of the server. The
//! realm is a setting of a process, so each type of keys is tested in a child process that runs
//! this program again.

use super::*;
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use weir_base::{Rng, SeededRng};

/// Names the realm's folder to the process that is to use it.
const FOLDER: &str = "WEIR_TEST_REALM";
const PATHS: &str = "/usr/sbin:/sbin:/usr/bin:/bin";

/// Types of keys; whether messages are protected without the library.
const TYPES: [(&str, bool); 5] = [
    ("aes128-cts-hmac-sha1-96", true),
    ("aes256-cts-hmac-sha1-96", true),
    ("aes128-cts-hmac-sha256-128", true),
    ("aes256-cts-hmac-sha384-192", true),
    ("camellia256-cts-cmac", false),
];

struct Realm {
    folder: tempfile::TempDir,
    centre: Child,
}

impl Drop for Realm {
    fn drop(&mut self) {
        self.centre.kill().unwrap();
        self.centre.wait().unwrap();
    }
}

fn command(folder: &Path, program: &str, config: &str) -> Command {
    let mut command = Command::new(program);
    command
        .env("PATH", PATHS)
        .env("KRB5_CONFIG", folder.join(config))
        .env("KRB5_KDC_PROFILE", folder.join("kdc.conf"))
        .env("KRB5CCNAME", folder.join(format!("{config}.cache")))
        .env("KRB5RCACHEDIR", folder)
        .stdin(Stdio::null());
    command
}

fn run(mut command: Command) {
    let done = command.output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{command:?}: {said}");
}

impl Realm {
    /// `None` if the programs are not installed.
    fn start() -> Option<Realm> {
        let needed = [
            "/usr/sbin/krb5kdc",
            "/usr/sbin/kadmin.local",
            "/usr/bin/kinit",
        ];
        if let Some(missing) = needed.iter().find(|path| !Path::new(path).exists()) {
            eprintln!("skipped: no {missing} (Debian: krb5-kdc, krb5-admin-server, krb5-user)");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path();
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let names: Vec<&str> = TYPES.iter().map(|(name, _)| *name).collect();
        let config = |types: &str| {
            format!(
                "[libdefaults]\n default_realm = T\n dns_lookup_kdc = false\n rdns = false\n\
                 dns_canonicalize_hostname = false\n permitted_enctypes = {types}\n\
                 [realms]\n T = {{\n  kdc = 127.0.0.1:{port}\n }}\n\
                 [domain_realm]\n localhost = T\n"
            )
        };
        std::fs::write(at.join("all"), config(&names.join(" "))).unwrap();
        let keys: String = names.iter().map(|name| format!("{name}:normal ")).collect();
        let database = at.display().to_string();
        let settings = format!(
            "[kdcdefaults]\n kdc_listen = 127.0.0.1:{port}\n kdc_tcp_listen = 127.0.0.1:{port}\n\
             [realms]\n T = {{\n  database_name = {database}/principal\n  key_stash_file = {database}/stash\n\
             acl_file = {database}/acl\n  supported_enctypes = {keys}\n }}\n\
             [logging]\n kdc = FILE:{database}/log\n"
        );
        std::fs::write(at.join("kdc.conf"), settings).unwrap();
        let mut create = command(at, "kdb5_util", "all");
        create.args(["create", "-s", "-r", "T", "-P", "x"]);
        run(create);
        for query in [
            "addprinc -randkey nfs/localhost".to_owned(),
            "addprinc -randkey alice".to_owned(),
            format!("ktadd -k {database}/user alice"),
        ] {
            let mut kadmin = command(at, "kadmin.local", "all");
            kadmin.args(["-q", &query]);
            run(kadmin);
        }
        let mut centre = command(at, "krb5kdc", "all");
        let quiet = centre.arg("-n").stdout(Stdio::null()).stderr(Stdio::null());
        let centre = quiet.spawn().unwrap();
        let mut realm = Realm { folder, centre };
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(
                realm.centre.try_wait().unwrap().is_none(),
                "the centre has ended"
            );
            std::thread::yield_now();
        }
        let at = realm.folder.path();
        for name in names {
            std::fs::write(at.join(name), config(name)).unwrap();
            // The service has a key of this type alone from now on.
            let mut kadmin = command(at, "kadmin.local", "all");
            let query = format!("ktadd -e {name}:normal -k {database}/{name}.keys nfs/localhost");
            kadmin.args(["-q", &query]);
            run(kadmin);
            let mut login = command(at, "kinit", name);
            login.args(["-k", "-t"]).arg(at.join("user")).arg("alice");
            run(login);
            let mut ticket = command(at, "kvno", name);
            ticket.arg("nfs/localhost");
            run(ticket);
        }
        Some(realm)
    }

    /// Runs the test `name` again, with a user's ticket whose keys are of that type.
    fn again(&self, name: &str, enctype: &str) {
        let program = std::env::current_exe().unwrap();
        let mut test = command(self.folder.path(), program.to_str().unwrap(), enctype);
        test.args(["--exact", name, "--nocapture"]);
        test.env(FOLDER, self.folder.path());
        run(test);
    }
}

/// The type of keys that this process is for.
fn enctype() -> String {
    let config = std::env::var("KRB5_CONFIG").unwrap();
    config.rsplit('/').next().unwrap().to_owned()
}

/// `gss_init_sec_context`.
type Init = unsafe extern "C" fn(
    *mut u32,
    Handle,
    *mut Handle,
    Handle,
    *const Oid,
    u32,
    u32,
    *const c_void,
    *const Buffer,
    *mut *const Oid,
    *mut Buffer,
    *mut u32,
    *mut u32,
) -> u32;

/// Functions of the library that only initiators call.
struct Initiator {
    init: Init,
    name: Handle,
}

/// Asks for mutual authentication, as NFS clients do: the acceptor chooses a key then.
const MUTUAL: u32 = 2;

impl Initiator {
    fn new() -> Initiator {
        let symbol = |name: &CStr| {
            // SAFETY: both are C strings.
            let found = unsafe {
                let library = libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
                libc::dlsym(library, name.as_ptr())
            };
            assert!(!found.is_null(), "{name:?}");
            found
        };
        type Import = unsafe extern "C" fn(*mut u32, *const Buffer, *const Oid, *mut Handle) -> u32;
        // SAFETY: the functions of these names have these signatures (RFC 2744).
        let (import, init) = unsafe {
            let import = std::mem::transmute::<Handle, Import>(symbol(c"gss_import_name"));
            (
                import,
                std::mem::transmute::<Handle, Init>(symbol(c"gss_init_sec_context")),
            )
        };
        // GSS_C_NT_HOSTBASED_SERVICE (RFC 2744 §4.1).
        let hostbased = b"\x2a\x86\x48\x86\xf7\x12\x01\x02\x01\x04";
        let kind = Oid {
            length: hostbased.len() as u32,
            elements: hostbased.as_ptr().cast(),
        };
        let (mut minor, mut name) = (0, std::ptr::null_mut());
        let text = Buffer::from_bytes(b"nfs@localhost");
        // SAFETY: all places outlive the call.
        let major = unsafe {
            import(
                &raw mut minor,
                &raw const text,
                &raw const kind,
                &raw mut name,
            )
        };
        assert_eq!(major, 0);
        Initiator { init, name }
    }

    /// A step of the initiator; the token for the acceptor.
    fn step(&self, context: &mut Context, token: &[u8], flags: u32) -> Vec<u8> {
        let (mut minor, mut out) = (0, Buffer::EMPTY);
        let token = Buffer::from_bytes(token);
        let (library, null) = (context.library.clone(), std::ptr::null_mut());
        // SAFETY: all places outlive the call; no bindings, the default credential and mechanism.
        let major = unsafe {
            (self.init)(
                &raw mut minor,
                null,
                &raw mut context.handle,
                self.name,
                std::ptr::null(),
                flags,
                0,
                null,
                &raw const token,
                std::ptr::null_mut(),
                &raw mut out,
                std::ptr::null_mut(),
                std::ptr::null_mut(),
            )
        };
        assert_eq!(major & ERRORS, 0, "{}", library.reason(major, minor));
        library.take(out)
    }
}

/// A context on both sides: the library's as the initiator, and the acceptor's copies.
fn establish(folder: &Path, flags: u32) -> (Context, Vec<Box<dyn Protection>>) {
    let library = Arc::new(Library::load().unwrap());
    let keys = keys(&library, &folder.join(format!("{}.keys", enctype()))).unwrap();
    let initiator = Initiator::new();
    let mut context = Context {
        library: library.clone(),
        handle: std::ptr::null_mut(),
    };
    let token = initiator.step(&mut context, &[], flags);
    let server = Server {
        library: library.clone(),
        keys,
        domains: Arc::default(),
    };
    let accepted = server.accept(&token, 3);
    assert_eq!(
        accepted.major,
        0,
        "{}",
        library.reason(accepted.major, accepted.minor)
    );
    if flags & MUTUAL != 0 {
        initiator.step(&mut context, &accepted.token, flags);
    }
    let established = accepted.established.unwrap();
    assert_eq!(established.peer.principal, "alice@T");
    (context, established.protections)
}

fn wrapped(by: &dyn Protection, message: &[u8]) -> Vec<u8> {
    let mut out = b"before".to_vec();
    let middle = message.len() / 2;
    assert!(by.wrap(&[&message[..middle], &message[middle..]], &mut out));
    assert_eq!(out[..6], *b"before");
    out.split_off(6)
}

fn unwrapped(by: &dyn Protection, sealed: &[u8]) -> Option<Vec<u8>> {
    let opened = by.unwrap(sealed)?;
    Some(opened.bytes[opened.message].to_vec())
}

fn in_realm(folder: &Path) {
    let enctype = enctype();
    let known = TYPES.iter().find(|(name, _)| *name == enctype).unwrap().1;
    for flags in [MUTUAL, 0] {
        let (initiator, copies) = establish(folder, flags);
        assert_eq!(copies.len(), if known { 1 } else { 3 });
        let rng = SeededRng::new(11);
        let sizes = (0..70).chain([1000, 4096, 65_536, 100_003]);
        for (n, size) in sizes.enumerate() {
            let acceptor = &*copies[n % copies.len()];
            let mut message = vec![0; size];
            rng.fill(&mut message);
            // Both directions, of both kinds of token.
            assert!(acceptor.verify(&message, &initiator.mic(&message).unwrap()));
            let sealed = initiator.wrap(&message).unwrap();
            assert_eq!(unwrapped(acceptor, &sealed).unwrap(), message);
            let mic = acceptor
                .mic(&[&message[..size / 3], &message[size / 3..]])
                .unwrap();
            assert!(initiator.verify(&message, &mic), "{enctype}, {size} bytes");
            let sealed = wrapped(acceptor, &message);
            assert_eq!(
                initiator.unwrap(&sealed).unwrap(),
                message,
                "{enctype}, {size} bytes"
            );
            // One bit is wrong, in either direction.
            for _ in 0..4 {
                let flip = |bytes: &mut [u8]| {
                    let bit = rng.below(8 * bytes.len() as u64) as usize;
                    bytes[bit / 8] ^= 1 << (bit % 8);
                };
                let (mut bad, mut bad_mic) = (initiator.wrap(&message).unwrap(), mic.clone());
                let turned = [bad[6], bad[7]];
                flip(&mut bad);
                if turned != [bad[6], bad[7]] {
                    // The token's rotation count is not protected, and a rotation by its whole
                    // length changes nothing.
                    bad[5] ^= 1;
                }
                assert!(unwrapped(acceptor, &bad).is_none());
                flip(&mut bad_mic);
                assert!(!initiator.verify(&message, &bad_mic));
                let mut bad_mic = initiator.mic(&message).unwrap();
                flip(&mut bad_mic);
                assert!(!acceptor.verify(&message, &bad_mic));
            }
        }
        // What one acceptor has made is not taken by another context.
        let (_, others) = establish(folder, flags);
        assert!(!others[0].verify(b"text", &initiator.mic(b"text").unwrap()));
        assert!(unwrapped(&*others[0], &initiator.wrap(b"text").unwrap()).is_none());
    }
}

#[test]
fn the_library_and_we_take_each_others_tokens() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return in_realm(Path::new(&folder));
    }
    let Some(realm) = Realm::start() else {
        return;
    };
    for (enctype, _) in TYPES {
        let name = "library::tests::the_library_and_we_take_each_others_tokens";
        realm.again(name, enctype);
    }
}
