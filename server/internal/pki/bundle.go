package pki

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"

	"github.com/beckon-fleet/beckon/internal/durable"
)

// bundle is a private key and its certificate.
type bundle struct {
	key  crypto.Signer
	cert *x509.Certificate
}

func (b bundle) write(path string) error {
	key, err := x509.MarshalPKCS8PrivateKey(b.key)
	if err != nil {
		return fmt.Errorf("encode key: %w", err)
	}
	text := append(
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}),
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: b.cert.Raw})...)
	return durable.Write(path, text, 0o600)
}

// readBundle takes a file only when it is whole: one key, its certificate, and
// nothing else. Others' right to read it is taken away.
func readBundle(path string) (b bundle, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return b, err
	}
	if info, err := os.Stat(path); err != nil {
		return b, err
	} else if info.Mode()&0o077 != 0 {
		if err := os.Chmod(path, 0o600); err != nil {
			return b, err
		}
	}
	if b, err = parseBundle(text); err != nil {
		return bundle{}, fmt.Errorf("it is damaged: %w", err)
	}
	return b, nil
}

func parseBundle(text []byte) (b bundle, err error) {
	for len(bytes.TrimSpace(text)) > 0 {
		block, rest := pem.Decode(text)
		switch {
		case block == nil:
			return b, errors.New("there is something in it that is not PEM")
		case block.Type == "PRIVATE KEY" && b.key == nil:
			b.key, err = parseKey(block.Bytes)
		case block.Type == "CERTIFICATE" && b.cert == nil:
			b.cert, err = x509.ParseCertificate(block.Bytes)
		default:
			err = fmt.Errorf("there is a %s too many in it", block.Type)
		}
		if err != nil {
			return b, err
		}
		text = rest
	}
	if b.key == nil || b.cert == nil {
		return b, errors.New("it does not hold both a private key and a certificate")
	}
	public, ok := b.key.Public().(interface{ Equal(crypto.PublicKey) bool })
	if !ok || !public.Equal(b.cert.PublicKey) {
		return b, errors.New("its private key is not that of its certificate")
	}
	return b, nil
}

func parseKey(der []byte) (crypto.Signer, error) {
	key, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil, err
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("a %T does not sign", key)
	}
	return signer, nil
}
