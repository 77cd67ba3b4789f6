"""Signatures of every algorithm, made and verified by PyPI cryptography: one JSON job a line in, one answer out.

    {"job": "verify", "alg", "spki", "message", "signature"}  ->  {"valid": bool}
    {"job": "sign", "alg", "message"}  ->  {"public", "signature", "pkcs8"}

Bytes are hex. ECDSA signatures are r || s; the public key of an answer is raw, of RSA it is PKCS#1.
"""

import json
import sys

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, mldsa, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import (
    decode_dss_signature,
    encode_dss_signature,
)
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_der_public_key,
)

PSS = padding.PSS(mgf=padding.MGF1(hashes.SHA256()), salt_length=32)
RAW = (Encoding.Raw, PublicFormat.Raw)
POINT = (Encoding.X962, PublicFormat.UncompressedPoint)
CURVES = {
    "ecdsa-p256": (ec.SECP256R1(), hashes.SHA256(), 32),
    "ecdsa-p384": (ec.SECP384R1(), hashes.SHA384(), 48),
}


def verify(alg, key, message, signature):
    if alg in CURVES:
        _, digest, half = CURVES[alg]
        r, s = (int.from_bytes(part, "big") for part in (signature[:half], signature[half:]))
        key.verify(encode_dss_signature(r, s), message, ec.ECDSA(digest))
    elif alg == "rsa-pss-3072":
        key.verify(signature, message, PSS, hashes.SHA256())
    else:
        expected = {"ed25519": ed25519.Ed25519PublicKey, "ml-dsa-65": mldsa.MLDSA65PublicKey}
        assert isinstance(key, expected[alg]), alg
        key.verify(signature, message)


def sign(alg, message):
    if alg in CURVES:
        curve, digest, half = CURVES[alg]
        key = ec.generate_private_key(curve)
        r, s = decode_dss_signature(key.sign(message, ec.ECDSA(digest)))
        return key, POINT, r.to_bytes(half, "big") + s.to_bytes(half, "big")
    if alg == "rsa-pss-3072":
        key = rsa.generate_private_key(public_exponent=65537, key_size=3072)
        return key, (Encoding.DER, PublicFormat.PKCS1), key.sign(message, PSS, hashes.SHA256())
    kinds = {"ed25519": ed25519.Ed25519PrivateKey, "ml-dsa-65": mldsa.MLDSA65PrivateKey}
    key = kinds[alg].generate()
    return key, RAW, key.sign(message)


def answer(job):
    message = bytes.fromhex(job["message"])
    if job["job"] == "verify":
        key = load_der_public_key(bytes.fromhex(job["spki"]))
        try:
            verify(job["alg"], key, message, bytes.fromhex(job["signature"]))
            return {"valid": True}
        except InvalidSignature:
            return {"valid": False}
    key, form, signature = sign(job["alg"], message)
    pkcs8 = key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    return {
        "public": key.public_key().public_bytes(*form).hex(),
        "signature": signature.hex(),
        "pkcs8": pkcs8.hex(),
    }


for line in sys.stdin:
    print(json.dumps(answer(json.loads(line))), flush=True)
