// Command jinjapeer renders templates for lab/golden/chat_differential.py: every line
// of standard input is a request, every line of standard output its answer, both
// JSON.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"glimpse/model/chat/jinja"
)

type request struct {
	Source    string       `json:"source"`    // a template, or empty: the last one
	Variables jinja.Object `json:"variables"` // in order
	Now       string       `json:"now"`       // RFC 3339, or empty
}

type answer struct {
	Text   string `json:"text"`
	Error  string `json:"error,omitempty"`
	Raised bool   `json:"raised,omitempty"` // by raise_exception
}

func main() {
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve() error {
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<28)
	out := bufio.NewWriter(os.Stdout)
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	var template *jinja.Template
	var parseErr error
	for in.Scan() {
		var r request
		if err := json.Unmarshal(in.Bytes(), &r); err != nil {
			return fmt.Errorf("request: %w", err)
		}
		if r.Source != "" {
			template, parseErr = jinja.Parse(r.Source)
		}
		var a answer
		err := parseErr
		if err == nil {
			a.Text, err = render(template, r)
		}
		var raised *jinja.RaisedError
		switch {
		case errors.As(err, &raised):
			a.Error, a.Raised = raised.Message, true
		case err != nil:
			a.Error = err.Error()
		}
		if err := enc.Encode(a); err != nil {
			return err
		}
		if err := out.Flush(); err != nil {
			return err
		}
	}
	return in.Err()
}

func render(t *jinja.Template, r request) (string, error) {
	variables := make(map[string]any, len(r.Variables))
	for _, m := range r.Variables {
		variables[m.Key] = m.Value
	}
	var now time.Time
	if r.Now != "" {
		var err error
		if now, err = time.Parse(time.RFC3339, r.Now); err != nil {
			return "", err
		}
	}
	return t.Render(context.Background(), variables, now)
}
