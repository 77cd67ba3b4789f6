//! Records of the DHT: any bytes are refused or are the one encoding of a record, and no change to a record that was
//! signed passes its check.

use std::sync::LazyLock;

use svc_dht::{
    identity::Identity,
    record::{Record, RecordLimits},
};

static SIGNED: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let publisher = Identity::from_seed(&[1; 32]);
    Record::sign_value(&publisher, b"name", b"value", 1, 1_000_000, 1_000_000).encode()
});

pub fn run(input: (u64, u16, u8, &[u8])) {
    let (now, at, change, bytes) = input;
    if let Ok(record) = Record::decode(bytes) {
        assert_eq!(record.encode(), bytes);
        let _ = record.check_shape(&RecordLimits::default(), now);
        let _ = (record.value(), record.provider_contact(), record.ends_ms());
    }
    let mut changed = SIGNED.clone();
    let at = usize::from(at) % changed.len();
    changed[at] ^= change;
    let passes = Record::decode(&changed).is_ok_and(|record| record.check_signature());
    assert_eq!(passes, change == 0);
}
