//! The command line of svc-dht. Parses arguments; the work is in the library.

fn main() {
    eprintln!("svc-dht: there is no service yet");
    std::process::exit(2);
}
