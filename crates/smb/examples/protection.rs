//! Measures signatures and encryption of messages, in nanoseconds on one core.
//!
//! `cargo run --release -p weir-smb --example protection`

#![allow(clippy::unwrap_used, clippy::disallowed_methods)] // A measurement.

use std::hint::black_box;
use std::time::Instant;
use weir_smb::dialect::Dialect;
use weir_smb::encryption::{Cipher, Nonces, Sealing};
use weir_smb::keys::{Preauth, Signer, Signing};

/// Prints the time of the fastest of several runs of `call`.
fn measure(name: &str, mut call: impl FnMut()) {
    let rounds = 500u32;
    let mut best = u128::MAX;
    for _ in 0..40 {
        let start = Instant::now();
        for _ in 0..rounds {
            call();
        }
        best = best.min(start.elapsed().as_nanos() / u128::from(rounds));
    }
    println!("{name:24} {best:6} ns");
}

fn main() {
    for (size, bytes) in [("200 B", 200), ("4 KiB", 4096), ("64 KiB", 65_536)] {
        let mut message = vec![7u8; bytes];
        for signing in [Signing::Hmac, Signing::Cmac, Signing::Gmac] {
            let signer = Signer::new((Dialect::Smb311, signing), &[1; 16], &Preauth::default());
            measure(&format!("sign {signing:?} {size}"), || {
                black_box(signer.sign(black_box(&message), std::iter::empty()));
            });
            message[48..64].fill(0);
            let signature = signer.sign(&message, std::iter::empty());
            message[48..64].copy_from_slice(&signature);
            measure(&format!("verify {signing:?} {size}"), || {
                assert!(signer.verify(black_box(&message)));
            });
        }
        for cipher in [
            Cipher::Aes128Gcm,
            Cipher::Aes256Gcm,
            Cipher::Aes128Ccm,
            Cipher::Aes256Ccm,
        ] {
            let keys = || Sealing::new(cipher, Dialect::Smb311, &[1; 32], &Preauth::default());
            let (sealing, client, nonces) = (keys(), keys().turned(), Nonces::new(0));
            let mut sealed = Vec::new();
            measure(&format!("seal {cipher:?} {size}"), || {
                sealed.clear();
                let plain = std::iter::once(black_box(&message[..]));
                sealing.seal(&mut sealed, nonces.next(), 1, plain);
            });
            measure(&format!("open {cipher:?} {size}"), || {
                black_box(client.open(&sealed).unwrap());
            });
        }
    }
}
