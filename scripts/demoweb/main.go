// Command demoweb is the app that the demo deploys: one page that says which
// app runs where, as the instance was told by its environment.
package main

import (
	"context"
	"errors"
	"fmt"
	"html/template"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Getenv); err != nil {
		fmt.Fprintln(os.Stderr, "demoweb:", err)
		os.Exit(1)
	}
}

// run serves the page on $PORT, or 8080, until ctx ends.
func run(ctx context.Context, getenv func(string) string) error {
	port := getenv("PORT")
	if port == "" {
		port = "8080"
	}
	listener, err := net.Listen("tcp", ":"+port)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	server := &http.Server{Handler: handler(getenv), ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	fmt.Printf("demoweb: revision %s of %s listens on port %s\n", getenv("REVISION"), getenv("APP"), port)
	select {
	case err := <-served:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := server.Shutdown(grace); err != nil {
		return fmt.Errorf("stop: %w", err)
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

// handler answers / with the page, and with 404 what else is asked for.
func handler(getenv func(string) string) http.Handler {
	tmpl := template.Must(template.New("page").Parse(page))
	started := time.Now().UTC()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		if err := tmpl.Execute(w, describe(getenv, started)); err != nil {
			fmt.Fprintln(os.Stderr, "demoweb: write page:", err)
		}
	})
	return mux
}

// A fact is one line of the page.
type fact struct{ Name, Value string }

// description is what the page shows.
type description struct {
	App   string
	Facts []fact // of which nothing is known are left out
}

func describe(getenv func(string) string, started time.Time) description {
	d := description{App: getenv("APP")}
	if d.App == "" {
		d.App = "demoweb"
	}
	hostname, _ := os.Hostname() // a container's is its id; without one the line is left out
	for _, f := range []fact{
		{"Node", getenv("NODE")},
		{"App", getenv("APP")},
		{"Revision", getenv("REVISION")},
		{"Instance", hostname},
		{"Started", started.Format("2006-01-02 15:04:05 UTC")},
	} {
		if f.Value != "" {
			d.Facts = append(d.Facts, f)
		}
	}
	return d
}
