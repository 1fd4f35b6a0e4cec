// Command hold is what the benchmarks hold the agent against: a program that
// has one TLS connection and does nothing with it.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/beckon-fleet/beckon/api"
)

func main() {
	to := flag.String("to", "", "whom to call, as `ADDR:PORT`")
	ca := flag.String("ca", "", "the CA's certificate, a `FILE`")
	flag.Parse()
	if err := hold(*to, *ca); err != nil {
		fmt.Fprintln(os.Stderr, "hold:", err)
		os.Exit(1)
	}
}

// hold ends when the other side does.
func hold(to, ca string) error {
	text, err := os.ReadFile(ca)
	if err != nil {
		return fmt.Errorf("read CA: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(text)
	conn, err := tls.Dial("tcp", to, &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: roots, ServerName: api.ServerName})
	if err != nil {
		return fmt.Errorf("dial: %w", err)
	}
	defer conn.Close()
	fmt.Println("connected to", conn.RemoteAddr())
	if _, err := io.Copy(io.Discard, conn); err != nil {
		return fmt.Errorf("hold connection: %w", err)
	}
	return nil
}
