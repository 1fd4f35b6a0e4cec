// Instance is the software that the tests run. Its behaviour is its
// arguments: each is a step, carried out one after the other.
//
//	say TEXT    write a line to stdout
//	cry TEXT    write a line to stderr
//	wait D      let a duration pass
//	deaf        ignore SIGTERM from here on
//	eat         use memory until there is no more
//	env         write the environment, a line a variable
//	raw         write what a terminal would obey
//	serve       answer requests on $PORT with $TEXT, until told to end
//	beat D N    write "beat 1" to "beat N", a duration apart
//	flood N     write N MiB of lines
//	who         write the user, the groups and the folder
//	child       start a process that ignores SIGTERM and its parent's end
//	exit N      exit with code N
//	first D N   in the first life only: exit with code N after a duration
//	later N     in all lives but the first: exit with code N
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	for steps := os.Args[1:]; len(steps) > 0; {
		used, err := step(steps[0], append(steps[1:], "", ""))
		if err != nil {
			fmt.Fprintln(os.Stderr, "instance:", err)
			os.Exit(99)
		}
		steps = steps[1+used:]
	}
}

// step carries out one step and says how many arguments it took.
func step(name string, args []string) (used int, err error) {
	switch name {
	case "say":
		_, err = fmt.Println(args[0])
		return 1, err
	case "cry":
		_, err = fmt.Fprintln(os.Stderr, args[0])
		return 1, err
	case "wait":
		return 1, wait(args[0])
	case "deaf":
		signal.Ignore(syscall.SIGTERM)
		return 0, nil
	case "eat":
		return 0, eat()
	case "env":
		_, err = fmt.Println(strings.Join(os.Environ(), "\n"))
		return 0, err
	case "raw":
		_, err = fmt.Print("\x1b[31mred\x1b[0m \x07bell\xff \u202eend\n" + strings.Repeat("x", 9000) + "\n")
		return 0, err
	case "serve":
		return 0, serve()
	case "beat":
		return 2, beat(args[0], args[1])
	case "flood":
		return 1, flood(args[0])
	case "who":
		return 0, who()
	case "child":
		return 0, child()
	case "exit":
		return 1, exit(args[0])
	case "first":
		return 2, first(args[0], args[1])
	case "later":
		return 1, later(args[0])
	}
	return 0, fmt.Errorf("no step %q", name)
}

func exit(code string) error {
	n, err := strconv.Atoi(code)
	if err == nil {
		os.Exit(n)
	}
	return err
}

func eat() error {
	var all [][]byte
	for {
		more := make([]byte, 1<<20)
		for i := range more {
			more[i] = 1
		}
		all = append(all, more)
		if len(all) > 4096 {
			return errors.New("there is too much memory")
		}
	}
}

func wait(duration string) error {
	d, err := time.ParseDuration(duration)
	time.Sleep(d)
	return err
}

func beat(duration, times string) error {
	n, err := strconv.Atoi(times)
	for i := 1; i <= n && err == nil; i++ {
		fmt.Println("beat", i)
		err = wait(duration)
	}
	return err
}

func flood(size string) error {
	n, err := strconv.Atoi(size)
	out := bufio.NewWriter(os.Stdout)
	for i := range n << 13 { // lines of 128 bytes
		fmt.Fprintf(out, "%127d\n", i)
	}
	return errors.Join(err, out.Flush())
}

func who() error {
	groups, err := os.Getgroups()
	if err != nil {
		return err
	}
	dir, err := os.Getwd()
	fmt.Println("who", os.Geteuid(), os.Getegid(), groups, dir)
	return err
}

func child() error {
	cmd := exec.Command("/proc/self/exe", "deaf", "say", "child", "wait", "1h")
	cmd.Stdout, cmd.SysProcAttr = os.Stdout, &syscall.SysProcAttr{Setsid: true}
	return cmd.Start()
}

func first(duration, code string) error {
	lived, err := livedBefore()
	if err != nil || lived {
		return err
	}
	if err := wait(duration); err != nil {
		return err
	}
	return exit(code)
}

func later(code string) error {
	lived, err := livedBefore()
	if err != nil || !lived {
		return err
	}
	return exit(code)
}

// livedBefore marks that the instance has lived.
func livedBefore() (bool, error) {
	err := os.Mkdir("lived", 0o700) // a container begins in /
	if errors.Is(err, fs.ErrExist) {
		return true, nil
	}
	return false, err
}

// serve speaks just enough HTTP: net/http would take a minute to compile.
func serve() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	listener, err := net.Listen("tcp", ":"+os.Getenv("PORT"))
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { _ = listener.Close() })
	for {
		conn, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		go answer(conn)
	}
}

func answer(conn net.Conn) {
	defer conn.Close()
	_, _ = conn.Read(make([]byte, 4096))
	text := os.Getenv("TEXT")
	fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", len(text), text)
}
