//go:build !linux

package e2e

import "errors"

// mount cannot be done here.
func mount(string) error { return errors.ErrUnsupported }
