//! Journals, by both ways to meet rot: however a file is read, its valid part is the same and stands on its own, and what
//! is written behind it is read too.

use ron_core::journal::{Batch, Format, HEADER_LEN, Rot, Scan, Scanner, encode_header, scan};
use ron_kms::audit::frames::Audit;
use svc_dht::record_journal::Records;

pub fn run(input: (u8, u16, u8, &[u8])) {
    let (piece, at, change, body) = input;
    check::<Audit>(piece, body);
    check::<Records>(piece, body);
    let _ = svc_dht::record_journal::scan(body, |_| ());

    // A good file with one byte changed: nothing is made up.
    let mut good = encode_header::<Records>([1; 16]);
    for number in 0..3 {
        let mut batch = Batch::<Records>::new(number);
        put(&mut batch, body);
        good.extend(batch.bytes());
    }
    let (whole, _) = read::<Records>(&good);
    let at = HEADER_LEN + usize::from(at) % (good.len() - HEADER_LEN);
    good[at] ^= change;
    let (left, _) = read::<Records>(&good);
    assert!(left.iter().all(|record| whole.contains(record)));
    assert!(change != 0 || left == whole);
}

fn check<F: Format>(piece: u8, body: &[u8]) {
    let _ = scan::<F>(body, |_| ());
    let mut file = [&encode_header::<F>([1; 16])[..], body].concat();
    let (records, whole) = read::<F>(&file);
    let mut scanner = Scanner::<F>::new();
    let mut again = Vec::new();
    for piece in body.chunks(usize::from(piece) + 1) {
        scanner.feed(piece, |frame| again.push(frame.bytes.to_vec()));
    }
    let in_pieces = scanner.finish(|frame| again.push(frame.bytes.to_vec()));
    assert_eq!((&in_pieces, &again), (&whole, &records));

    assert!(whole.valid_len >= HEADER_LEN as u64 && whole.valid_len <= file.len() as u64);
    file.truncate(whole.valid_len as usize);
    let (cut, scan) = read::<F>(&file);
    assert_eq!((&cut, scan.valid_len), (&records, whole.valid_len));
    let mut batch = Batch::<F>::new(whole.next);
    put(&mut batch, b"any");
    file.extend(batch.bytes());
    let (more, _) = read::<F>(&file);
    assert!(F::ROT == Rot::Stop || more.len() >= records.len());
}

fn put<F: Format>(batch: &mut Batch<F>, bytes: &[u8]) {
    let _ = batch.push_with(&[], |out| {
        out.extend(&bytes[..bytes.len().min(1024)]);
        Ok(())
    });
}

fn read<F: Format>(file: &[u8]) -> (Vec<Vec<u8>>, Scan) {
    let mut records = Vec::new();
    let scan = scan::<F>(file, |frame| records.push(frame.bytes.to_vec()));
    (records, scan.expect("the header is good").1)
}
