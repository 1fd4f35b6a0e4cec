// Command limit is what the benchmarks hold the server against: the least that
// a program can do behind the same TLS. It shows the certificate of a real
// server's data folder, and its web server is set as the real one's. An event
// stream is opened, greeted and kept alive; whatever else is asked is read to
// its end and answered with nothing.
package main

import (
	"crypto/tls"
	"encoding/pem"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/beckon-fleet/beckon/api"
)

func main() {
	data := flag.String("data", "", "the data `DIR` of the server whose certificate is shown")
	listen := flag.String("listen", "127.0.0.1:0", "as `ADDR:PORT`")
	flag.Parse()
	if err := serve(*data, *listen); err != nil {
		fmt.Fprintln(os.Stderr, "limit:", err)
		os.Exit(1)
	}
}

func serve(data, listen string) error {
	certificate, err := load(data)
	if err != nil {
		return fmt.Errorf("load certificate: %w", err)
	}
	on, err := net.Listen("tcp", listen)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	routes := http.NewServeMux()
	routes.HandleFunc("GET "+api.Stream.Path, stream)
	routes.HandleFunc("/", nothing)
	server := &http.Server{
		Handler:           routes,
		TLSConfig:         &tls.Config{MinVersion: tls.VersionTLS13, ClientAuth: tls.RequestClientCert, Certificates: []tls.Certificate{certificate}},
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       120 * time.Second,
		MaxHeaderBytes:    32 << 10,
		HTTP2:             &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
		ErrorLog:          log.New(io.Discard, "", 0),
	}
	fmt.Println("listening on", on.Addr())
	return server.ServeTLS(on, "", "")
}

// load is the server's key and its chain up to the CA.
func load(data string) (tls.Certificate, error) {
	file := filepath.Join(data, "server.pem")
	certificate, err := tls.LoadX509KeyPair(file, file)
	if err != nil {
		return certificate, err
	}
	text, err := os.ReadFile(filepath.Join(data, "ca.crt"))
	if err != nil {
		return certificate, err
	}
	ca, _ := pem.Decode(text)
	if ca == nil {
		return certificate, fmt.Errorf("ca.crt is not PEM")
	}
	certificate.Certificate = append(certificate.Certificate, ca.Bytes)
	return certificate, nil
}

func nothing(w http.ResponseWriter, r *http.Request) {
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return // the caller has gone
	}
	w.WriteHeader(http.StatusNoContent)
}

func stream(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", api.Stream.ContentType)
	control := http.NewResponseController(w)
	keepalive := time.NewTicker(api.Keepalive)
	defer keepalive.Stop()
	text := "event: " + api.StreamCursors + "\ndata: {\"commands\": 0}\n\n"
	for {
		if _, err := io.WriteString(w, text); err != nil {
			return // the caller has gone
		}
		if err := control.Flush(); err != nil {
			return
		}
		text = ": keepalive\n\n"
		select {
		case <-r.Context().Done():
			return
		case <-keepalive.C:
		}
	}
}
