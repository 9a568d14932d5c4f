// Package yamlconfig reads configuration files into Go structs and writes them
// back.
//
// A file is YAML; JSON is a part of it. Keys are the fields' json tags, so that
// one struct is the file, the command line's target and the record beside the
// results. A key that no field has, a key given twice and a value of the wrong type
// are errors that name the file, the line and the key; an unknown key comes with
// the nearest known one. Values that a file leaves out stay what they were, which
// is how defaults are given; elements of lists are new, and get theirs from
// [Defaulter].
package yamlconfig
