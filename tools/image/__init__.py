"""``make image``: build an image of a program, without a container runtime and an image registry.

The recipe is the program's Dockerfile. Instead of its base image, the image has the Python
interpreter that runs this tool, with the standard library and the shared libraries that they need.
The image is for the architecture of this machine. The same interpreter, packages and commit give
the same image. After the build, the tool unpacks the archive and runs the program in it.
"""
