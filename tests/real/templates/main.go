// Renders environment templates as Go's text/template does, reads what came out as Kubernetes' own tools read YAML, and writes it as
// JSON with sorted keys: what the gateway's rendering is compared with.
//
//	templates render FACTS.json TEMPLATE.yaml...
//	templates read FILE.yaml...                    only reads YAML
//
// One line for each file: its name without ending, a tab, and the JSON; or `!` and why there is none.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"sigs.k8s.io/yaml"
)

func main() {
	switch {
	case len(os.Args) > 3 && os.Args[1] == "render":
		text, err := os.ReadFile(os.Args[2])
		var facts any
		if err == nil {
			facts, err = decode(text)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "templates:", err)
			os.Exit(1)
		}
		each(os.Args[3:], func(name string, text []byte) ([]byte, error) { return render(name, text, facts) })
	case len(os.Args) > 2 && os.Args[1] == "read":
		each(os.Args[2:], func(_ string, text []byte) ([]byte, error) { return read(text) })
	default:
		fmt.Fprintln(os.Stderr, "templates render FACTS.json TEMPLATE.yaml... | templates read FILE.yaml...")
		os.Exit(2)
	}
}

func each(paths []string, action func(name string, text []byte) ([]byte, error)) {
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
		text, err := os.ReadFile(path)
		if err == nil {
			text, err = action(name, text)
		}
		if err != nil {
			text = []byte("!" + strings.ReplaceAll(err.Error(), "\n", " "))
		}
		fmt.Printf("%s\t%s\n", name, text)
	}
}

func render(name string, text []byte, facts any) ([]byte, error) {
	parsed, err := template.New(name).Option("missingkey=error").Parse(string(text))
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := parsed.Execute(&out, facts); err != nil {
		return nil, err
	}
	return read(out.Bytes())
}

func read(text []byte) ([]byte, error) {
	data, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, err
	}
	// Once more, for sorted keys.
	top, err := decode(data)
	if err != nil {
		return nil, err
	}
	return json.Marshal(top)
}

// decode keeps numbers as they are written: an id is no floating-point number.
func decode(text []byte) (top any, err error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	err = decoder.Decode(&top)
	return top, err
}
