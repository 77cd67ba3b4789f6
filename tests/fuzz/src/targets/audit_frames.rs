//! The file of audit records: however it is read, its valid prefix is the same, and stands on its own.

use ron_kms::audit::frames::{End, HEADER_LEN, Scan, Scanner, encode_header, scan};

pub fn run(input: (u8, &[u8])) {
    let (piece, body) = input;
    let _ = scan(body, |_| ());
    let file = [&encode_header([1; 16])[..], body].concat();
    let mut leaves: Vec<Vec<u8>> = Vec::new();
    let whole = scan(&file, |framed| leaves.push(framed.leaf.to_vec()));
    let (_, whole) = whole.expect("the header is good");

    let mut scanner = Scanner::new();
    let mut again = Vec::new();
    for piece in body.chunks(usize::from(piece) + 1) {
        scanner.feed(piece, |framed| again.push(framed.leaf.to_vec()));
    }
    let in_pieces = scanner.finish(|framed| again.push(framed.leaf.to_vec()));
    assert_eq!((&in_pieces, &again), (&whole, &leaves));

    assert!(whole.valid_len >= HEADER_LEN as u64 && whole.valid_len <= file.len() as u64);
    let cut = scan(&file[..whole.valid_len as usize], |_| ());
    let end = End::Clean;
    assert_eq!(cut.expect("the header is good").1, Scan { end, ..whole });
}
