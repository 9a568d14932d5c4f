package hub

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"unicode"

	"glimpse/checkpoints/gguf"
)

// defaultRevision is the branch of a name without @.
const defaultRevision = "main"

// repo is a model of the hub at a revision.
type repo struct {
	id       string // org/name
	revision string // branch, tag or commit
	file     string // the GGUF file, by its path in the repository; "" for safetensors weights
}

func (r repo) String() string {
	if r.file != "" {
		return r.id + "@" + r.revision + ":" + r.file
	}
	return r.id + "@" + r.revision
}

// ggufFiles are the files of the model that file is one of, all of them where it was split.
func (r repo) ggufFiles() []string { return gguf.Parts(r.file) }

// folder is the name of the model's folder in the cache.
func (r repo) folder() string { return inCache + strings.ReplaceAll(r.id, "/", "--") }

var (
	repoID     = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,95}/[A-Za-z0-9_][A-Za-z0-9_.-]{0,95}$`)
	commitHash = regexp.MustCompile(`^[0-9a-f]{40}$`)
)

// maxRevision bounds the name of a branch or tag, which becomes a file name.
const maxRevision = 200

// parseRepo reads org/name[@revision][:FILE.gguf].
func parseRepo(spec string) (repo, error) {
	spec, file, ofFile := strings.Cut(spec, ":")
	id, revision, named := strings.Cut(spec, "@")
	switch {
	case ofFile && repoID.MatchString(id) && !validGGUF(file):
		return repo{}, fmt.Errorf("file: got %.200q, want a .gguf file of the model, by its path at the hub", file)
	case !repoID.MatchString(id), strings.Contains(id, "--"), strings.Contains(id, ".."),
		strings.HasSuffix(id, ".git"), strings.HasSuffix(id, "."), strings.HasSuffix(id, "-"):
		return repo{}, fmt.Errorf("no such folder, and no name of a Hugging Face model, which reads org/name, org/name@revision or org/name:FILE.gguf")
	case !named:
		revision = defaultRevision
	case !validRevision(revision):
		return repo{}, fmt.Errorf("revision: got %q, want a branch, a tag or a commit", revision)
	}
	return repo{id: id, revision: revision, file: file}, nil
}

// validGGUF accepts the path of a GGUF file that leads to no place outside the snapshot.
func validGGUF(name string) bool {
	return strings.HasSuffix(name, ".gguf") && len(name) <= 255 && fs.ValidPath(name) && filepath.IsLocal(filepath.FromSlash(name)) &&
		!strings.ContainsFunc(name, func(r rune) bool { return unicode.IsControl(r) || strings.ContainsRune(`\:`, r) })
}

// validRevision accepts what Git accepts as a name, as far as it is also the name
// of a file inside refs.
func validRevision(name string) bool {
	if name == "" || len(name) > maxRevision || !filepath.IsLocal(name) || strings.ContainsAny(name, "\\:?*[^~ \x7f") {
		return false
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || strings.HasPrefix(part, ".") {
			return false
		}
	}
	return !strings.ContainsFunc(name, func(r rune) bool { return r < ' ' })
}

// isFolder tells that the spec can only be meant as a path.
func isFolder(spec string) bool {
	if spec == "." || spec == ".." || spec == "~" || filepath.IsAbs(spec) {
		return true
	}
	for _, prefix := range []string{"./", "../", "~/", "/"} {
		if strings.HasPrefix(filepath.ToSlash(spec), prefix) {
			return true
		}
	}
	_, err := os.Stat(spec)
	return err == nil
}
