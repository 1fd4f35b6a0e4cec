package probe

import (
	"bufio"
	"errors"
	"fmt"
	"os"
)

func memoryBytes() (int64, error) {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var kib int64
		if _, err := fmt.Sscanf(lines.Text(), "MemTotal: %d kB", &kib); err == nil {
			return kib << 10, nil
		}
	}
	return 0, errors.New("/proc/meminfo has no MemTotal")
}
