//go:build gpu && linux && (amd64 || arm64)

package cudadriver

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// library is one of NVIDIA's that is loaded at run time.
type library struct {
	variable string   // of the environment, which names another file
	names    []string // that the loader may know, the first choice first
	pattern  string   // of its files
	wheels   []string // of Python which have it, by their folder under nvidia
}

// candidates are the files to try, the first choice first: the one that the environment names, or else
// what the loader, a toolkit or a Python environment has.
func (l library) candidates() []string {
	if path := os.Getenv(l.variable); path != "" {
		return []string{path}
	}
	paths := slices.Clone(l.names)
	folders := []string{"/usr/local/cuda/lib64", "/opt/cuda/lib64"}
	roots := append([]string{os.Getenv("VIRTUAL_ENV"), os.Getenv("CONDA_PREFIX")}, pythonRoots()...)
	roots = append(roots, "/usr/local", "/usr")
	if home, err := os.UserHomeDir(); err == nil {
		roots = append(roots, filepath.Join(home, ".local"))
	}
	for _, root := range roots {
		if root == "" {
			continue
		}
		for _, packages := range []string{"site-packages", "dist-packages"} {
			for _, wheel := range l.wheels {
				folders = append(folders, filepath.Join(root, "lib", "python3*", packages, "nvidia", wheel, "lib"))
			}
			folders = append(folders, filepath.Join(root, "lib", "python3*", packages, "torch", "lib"))
		}
		folders = append(folders, filepath.Join(root, "lib")) // of a conda environment
	}
	for _, folder := range folders {
		found, err := filepath.Glob(filepath.Join(folder, l.pattern))
		if err == nil { // the pattern is ours
			slices.SortFunc(found, func(a, b string) int { return strings.Compare(filepath.Base(b), filepath.Base(a)) }) // the newer first
			paths = append(paths, found...)
		}
	}
	return paths
}

// pythonRoots are where the Pythons on the PATH lie, as in images that come with PyTorch:
// the environment that a link is in first.
func pythonRoots() (roots []string) {
	for _, folder := range filepath.SplitList(os.Getenv("PATH")) {
		link := filepath.Join(folder, "python3")
		program, err := filepath.EvalSymlinks(link)
		if err != nil {
			continue
		}
		for _, path := range []string{link, program} {
			if root := filepath.Dir(filepath.Dir(path)); !slices.Contains(roots, root) {
				roots = append(roots, root)
			}
		}
	}
	return roots
}
