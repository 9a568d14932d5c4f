// Package tables lays text out for people: in a file or a pipe one line for a row, however
// long, and on a terminal no line that is longer than the window is wide.
//
//	t := tables.New(tables.Column{Head: "POLICY"}, tables.Column{Head: "KEPT", Right: true},
//		tables.Column{Head: "RULE", Wrap: true})
//	t.Add("snapkv", "12.5%", "scores of the last queries")
//	return t.Write(w, tables.Columns(w))
package tables
