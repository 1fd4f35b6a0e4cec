// Command generate writes the OpenAPI documents of both surfaces from package
// api: calls, types and tags by reflection, words from its comments. It runs in
// the root of the repository, as `make generate` does.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if err := generate("."); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

// folder is where the documents are kept.
const folder = "schema/openapi"

func generate(root string) error {
	documents, err := documents(root)
	if err != nil {
		return err
	}
	for name, text := range documents {
		if err := os.WriteFile(filepath.Join(root, folder, name), text, 0o644); err != nil {
			return fmt.Errorf("write document: %w", err)
		}
	}
	return nil
}

// documents is the text of each document by the name of its file.
func documents(root string) (map[string][]byte, error) {
	source, err := readSource(filepath.Join(root, "api"))
	if err != nil {
		return nil, err
	}
	all := map[string][]byte{}
	for _, s := range surfaces() {
		document, err := s.document(source)
		if err != nil {
			return nil, fmt.Errorf("describe the %s surface: %w", s.name, err)
		}
		all[s.name+".yaml"] = document.yaml()
	}
	return all, nil
}
